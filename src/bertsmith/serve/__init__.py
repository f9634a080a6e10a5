"""The service: models over HTTP, batched across requests, and a page to try them on."""
