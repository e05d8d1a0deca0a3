"""Request bodies that are streamed: files, multipart forms, generators."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from tidegate._event_loop import run_native, wait_for_first

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterable, Iterable, Iterator

    from tidegate._native import Upload, UploadCall
    from tidegate._transport.httpx_family import HttpxFamily

# Bytes. Smaller bodies are read into memory, so that the gate can read the model and retry the
# call.
MAX_BUFFERED_BODY = 32 * 1024 * 1024


def fits_in_memory(request: Any, family: HttpxFamily) -> bool:
    """Returns `True` if a request body is in memory, or its content-length is at most 32 MiB."""
    if isinstance(request.stream, family.module.ByteStream):
        # A request that follows a redirect has only the stream of the first one.
        return True
    length = request.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= MAX_BUFFERED_BODY


def as_bytes(chunk: Any) -> bytes:
    """Returns a chunk of a body, which may be any object with the bytes in a buffer, as `bytes`."""
    return chunk if isinstance(chunk, bytes) else bytes(memoryview(chunk))


async def feed(upload: Upload, chunks: AsyncIterable[bytes]) -> None:
    """Passes the chunks of a request body to the upload. Waits while the upload's buffer is full.

    Returns after the last chunk, or earlier if the request has ended and the rest is not needed.
    If producing a chunk raises an exception, fails the request, also if its response has begun.
    """
    try:
        async for chunk in chunks:
            octets = as_bytes(chunk)
            while (taken := upload.offer(octets)) is False:
                await run_native(upload.ready)
            if taken is None:
                return
    except BaseException:
        # The traceback of the exception keeps the upload alive, so the upload is not dropped.
        upload.abandon()
        raise
    upload.finish()


async def await_response(future: asyncio.Future[Any], feeding: asyncio.Future[None]) -> Any:
    """Waits for the response while the task `feeding` sends the body.

    Returns the response or the error, which may arrive before the whole body is sent. If producing
    the body raises an exception, that exception is raised.
    """
    await wait_for_first(future, feeding)
    if feeding.done():
        # Raises the failure of the body, if there is one. The failed request may have ended, too.
        feeding.result()
    return await future


def send_upload(call: UploadCall, upload: Upload, body: Iterable[bytes]) -> tuple[Any, Iterator[bytes] | None]:
    """Sends the body from the calling thread, and waits for the response.

    Returns:
        The response or the error, and the unsent chunks of the body. They are None if the body has
        ended before the response arrived.

    """
    chunks = iter(body)
    unsent: Iterator[bytes] | None = None
    try:
        for chunk in chunks:
            if not call.feed(upload, as_bytes(chunk)):
                unsent = chain((chunk,), chunks)
                break
        else:
            upload.finish()
        return call.result(), unsent
    except BaseException:
        call.cancel()
        raise
