// The page Account: tokens and the password of one's own account; accounts of all, and the log, for administrators.
// SPDX-License-Identifier: BSD-3-Clause

import { get, post } from "./api";
import { button, clock, element, table } from "./dom";

interface Token {
  id: string;
  name: string;
  made: number;
  ends: number;
}

/** One's own password and tokens, and for administrators the accounts and the log. */
export function account(place: HTMLElement, role: string): () => void {
  const words = element("p", { role: "status" });
  const list = element("div");
  const name = element("input", { name: "token", "aria-label": "what the token is for" });
  const days = element("input", { type: "number", value: "90", min: "1", "aria-label": "days" });
  const show = async () => {
    const { tokens } = await get<{ tokens: Token[] }>("/api/tokens");
    const rows = tokens.map((token) => [token.name, clock(token.made), clock(token.ends), button("remove", () => post("/api/tokens/remove", { id: token.id }).then(show), words)]);
    list.replaceChildren(table(["for", "made", "ends", ""], rows));
  };
  const add = button("make a token", async () => {
    const { token } = await post<{ token: string }>("/api/tokens", { name: name.value, days: Number(days.value) });
    words.replaceChildren("Keep it now, it is not shown again: ", element("code", {}, token));
    await show();
  }, words);
  const log = element("div");
  place.replaceChildren(
    element("h1", {}, "Tokens for programs"),
    element("p", {}, "for ", name, " days ", days, " ", add),
    words,
    list,
    element("h1", {}, "Another password"),
    password(words),
    ...(role === "admin" ? accounts(words) : []),
    log,
  );
  show().catch((error) => (words.textContent = String(error)));
  if (role === "admin") {
    get<{ log: { at: number; who: string; what: string }[] }>("/api/audit")
      .then(({ log: entries }) => log.replaceChildren(element("h1", {}, "Who did what"), table(["time", "who", "what"], entries.map((entry) => [clock(entry.at), entry.who, entry.what]))))
      .catch((error) => (words.textContent = String(error)));
  }
  return () => {};
}

function password(words: HTMLElement): HTMLElement {
  const field = (name: string, complete: string) => element("input", { name, type: "password", autocomplete: complete, required: "" });
  const [old, fresh] = [field("old", "current-password"), field("new", "new-password")];
  const change = button("change", async () => {
    await post("/api/password", { old: old.value, new: fresh.value });
    old.value = fresh.value = "";
    words.textContent = "You have another password, and other sessions of yours have ended.";
  }, words);
  return element("p", {}, "old ", old, " new ", fresh, " ", change);
}

interface Account {
  name: string;
  role: string;
  projects: string[];
  kept: string;
}

/** All accounts, and a form that adds one or changes it. */
function accounts(words: HTMLElement): HTMLElement[] {
  const list = element("div", { id: "accounts" });
  const field = (name: string, more: Record<string, string> = {}) => element("input", { name, "aria-label": name, ...more });
  const [name, projects, secret] = [field("account"), field("projects"), field("password", { type: "password", autocomplete: "new-password" })];
  const role = element("select", { "aria-label": "role" }, ...["user", "manager", "support", "admin"].map((role) => element("option", {}, role)));
  const show = async () => {
    const found = await get<{ accounts: Account[] }>("/api/accounts");
    const rows = found.accounts.map((one) => {
      const change = button("change", async () => {
        [name.value, role.value, projects.value, secret.value] = [one.name, one.role, one.projects.join(" "), ""];
        name.focus();
      }, words);
      const remove = button("remove", async () => {
        if (!confirm(`Remove the account ${one.name} and its tokens?`)) return;
        await post("/api/accounts/remove", { name: one.name });
        await show();
      }, words);
      return [one.name, one.role, one.projects.join(" "), one.kept, element("span", {}, ...(one.kept === "here" ? [change, " "] : []), remove)];
    });
    list.replaceChildren(table(["name", "role", "projects", "password", ""], rows));
  };
  const save = button("save", async () => {
    const account = { name: name.value, role: role.value, projects: projects.value.split(/[ ,]+/).filter(Boolean) };
    await post("/api/accounts", secret.value ? { ...account, password: secret.value } : account);
    words.textContent = `The account ${name.value} is saved.`;
    name.value = projects.value = secret.value = "";
    await show();
  }, words);
  show().catch((error) => (words.textContent = String(error)));
  const note = "Without a password an account keeps the one it has. Who gets another role or password logs in again.";
  return [element("h1", {}, "Accounts"), element("p", { class: "note" }, note), element("p", {}, "name ", name, " ", role, " projects ", projects, " password ", secret, " ", save), list];
}
