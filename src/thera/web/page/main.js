// The local page of `thera app`.

import { start } from "./app.js";
import { ServerBackend } from "./backend.js";

await start(new ServerBackend());
