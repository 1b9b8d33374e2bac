// The page: who is there, and which view is shown. A view is named behind the # of the address.
// SPDX-License-Identifier: BSD-3-Clause

import { account } from "./account";
import { alerts } from "./alerts";
import { Refused, get, post } from "./api";
import { element } from "./dom";
import { host, hosts } from "./hosts";
import { network } from "./network";
import { errors, job, jobs, status } from "./tables";

interface Who {
  name: string;
  role: "user" | "manager" | "support" | "admin";
}

const ALL: Who["role"][] = ["user", "manager", "support", "admin"];
const VIEWS: [string, string, Who["role"][]][] = [
  ["network", "Network", ALL],
  ["jobs", "Jobs", ALL],
  ["hosts", "Hosts", ALL],
  ["errors", "Errors", ALL],
  ["alerts", "Alerts", ALL],
  ["status", "Monitor", ["support", "admin"]],
  ["account", "Account", ALL],
];
let role: Who["role"] = "user";

const place = element("main", { tabindex: "-1" });
const head = element("nav", { "aria-label": "views" });
document.body.append(element("header", {}, element("strong", {}, "Outboard"), head), place);

let end: () => void = () => {};

function route() {
  end();
  end = () => {};
  const [view = "network", ...words] = location.hash.slice(1).split("/").map(decodeURIComponent);
  for (const link of head.querySelectorAll("a")) {
    link.toggleAttribute("aria-current", link.getAttribute("href") === `#${view || "network"}`);
  }
  if (view === "jobs") end = jobs(place);
  else if (view === "job") end = job(place, words[0] ?? "", words[1] ?? "");
  else if (view === "hosts") end = hosts(place);
  else if (view === "host") end = host(place, words[0] ?? "");
  else if (view === "errors") end = errors(place);
  else if (view === "alerts") end = alerts(place, role);
  else if (view === "account") end = account(place, role);
  else if (view === "status") end = status(place);
  else end = network(place, words[0] && words[1] ? { source: words[0], id: words[1] } : undefined);
}

function start(who: Who) {
  const links = VIEWS.filter(([, , roles]) => roles.includes(who.role)).map(([name, title]) => element("a", { href: `#${name}` }, title));
  const out = element("button", { type: "button" }, "log out");
  out.addEventListener("click", async () => {
    await post("/api/logout");
    location.hash = "";
    location.reload();
  });
  head.replaceChildren(...links, element("span", { class: "who" }, `${who.name} (${who.role})`), out);
  role = who.role;
  document.body.dataset["who"] = who.name;
  window.addEventListener("hashchange", route);
  route();
}

function askWho(sentence = "") {
  const name = element("input", { name: "name", autocomplete: "username", required: "" });
  const password = element("input", { name: "password", type: "password", autocomplete: "current-password", required: "" });
  const words = element("p", { class: "wrong", role: "alert" }, sentence);
  const form = element("form", { class: "login" }, element("label", {}, "Name ", name), element("label", {}, "Password ", password), element("button", {}, "Log in"), words);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      start(await post<Who>("/api/login", { name: name.value, password: password.value }));
    } catch (error) {
      words.textContent = error instanceof Refused ? error.message : String(error);
    }
  });
  place.replaceChildren(form);
  name.focus();
  // If there is no answer, only the password is offered.
  get<{ oidc: boolean }>("/api/login").then(({ oidc }) => {
    if (oidc) form.append(element("a", { href: "api/oidc" }, "Log in as the site has it"));
  }, () => {});
}

document.addEventListener("keydown", (event) => {
  const isWriting = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "/" && !isWriting) {
    event.preventDefault();
    document.querySelector<HTMLInputElement>("input[type=search]")?.focus();
  }
});

async function begin() {
  const key = /^#key=([0-9a-f]+)$/.exec(location.hash)?.[1];
  try {
    if (key) {
      // The key must not stay in the address, which browsers keep.
      history.replaceState(null, "", location.pathname);
      start(await post<Who>("/api/login", { key }));
    } else {
      start(await get<Who>("/api/me"));
    }
  } catch (error) {
    if (error instanceof Refused && error.code === 401) askWho(key ? error.message : "");
    else askWho(String(error));
  }
}

void begin();
