// As `setup_client.cjs`, for vitest.
import { gateClients } from './setup_client.cjs';

gateClients(await import(process.env.TIDEGATE_SUITE_CLIENT));
