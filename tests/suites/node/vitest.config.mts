// Copied into `.suite` of a checkout: its configuration, and the file `setup_client.mjs`.
import { mergeConfig } from 'vitest/config';
import config from '../vitest.config.mts';

export default mergeConfig(config, { test: { setupFiles: [`${process.env.TIDEGATE_SUITE_HERE}/setup_client.mjs`] } });
