/**
 * Talking to the server: JSON in, JSON out, and one kind of error that says what went wrong in a reader's words.
 * Addresses are relative to this file's folder, so the page also works under a prefix.
 */
import { keep, recall } from "./storage.js";

const ROOT = new URL("../", import.meta.url);
const TOKEN = "bertsmith-token";
let token = recall(TOKEN, "sessionStorage");

/** What went wrong. `kind` is a key of words.js; `detail` is the server's own sentence. */
export class ServerError extends Error {
  constructor(kind, { detail = "", seconds = null } = {}) {
    super(detail || kind);
    this.kind = kind;
    this.detail = detail;
    this.seconds = seconds;
  }
}

const KINDS = {
  401: "fault-token",
  404: "fault-missing",
  408: "fault-slow",
  413: "fault-long",
  422: "fault-input",
  429: "fault-busy",
  503: "fault-busy",
};

/** Send this with every request from now on, until the browser's tab is closed. */
export function useToken(value) {
  token = value;
  keep(TOKEN, value, "sessionStorage");
}

/** What the server has loaded. */
export function getInfo() {
  return request("info", {});
}

/** POST `body` to `path`; `signal` can call it off. */
export function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return request(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function request(path, options) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response, content;
  try {
    response = await fetch(new URL(path, ROOT), { ...options, headers });
    content = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("fault-network");
  }
  if (!response.ok) throw refusal(response, content);
  try {
    return JSON.parse(content);
  } catch {
    throw new ServerError("fault-answer");
  }
}

function refusal(response, content) {
  let detail = "";
  try {
    detail = String(JSON.parse(content).error.message ?? "");
  } catch {
    // A proxy in between may answer in its own way; the status says enough.
  }
  const seconds = Number(response.headers.get("Retry-After")) || null;
  return new ServerError(KINDS[response.status] ?? "fault-other", {
    detail: detail || `HTTP ${response.status}`,
    seconds,
  });
}
