"use strict";
// One file, no dependency, no network. Rules of this code: text goes in as text nodes, never as markup (Trusted Types
// forbids the other way); names from the model are values, never keys, ids or addresses; digests are addresses.

// ---------------------------------------------------------------- building
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
function fill(el, attrs, kids) {
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k === "css") for (const [p, x] of Object.entries(v)) el.style.setProperty(p, x);
    else if (k === "on") for (const [e, f] of Object.entries(v)) el.addEventListener(e, f);
    else el.setAttribute(k, v === true ? "" : v);
  }
  el.append(...kids.flat(9).filter((x) => x !== null && x !== undefined && x !== false));
  return el;
}
const h = (tag, attrs, ...kids) => fill(document.createElement(tag), attrs, kids);
const s = (tag, attrs, ...kids) => fill(document.createElementNS(SVG, tag), attrs, kids);
const glyph = (state) => s("svg", { class: "glyph", "aria-hidden": "true" }, s("use", { href: "#g-" + state.replace(" ", "-") }));
const stateOf = (state, word) => h("span", { class: "state", "data-state": state }, glyph(state), word || state);

// Names from a model may carry anything: show controls and direction marks, cut the middle, isolate direction.
const ODD = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\ud800-\udfff](?![\udc00-\udfff])/g;
const code = (c) => "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
const plain = (t, n = 400) => { t = String(t).slice(0, n * 2).replace(ODD, (c) => "<" + code(c) + ">"); return t.length > n ? t.slice(0, n) + "…" : t; };
function foreign(text, max = 120) {
  let t = String(text);
  if (t.length > max) t = t.slice(0, max >> 1) + "…" + t.slice(-(max >> 1));
  const out = h("bdi", {});
  let at = 0;
  for (const m of t.matchAll(ODD)) { out.append(t.slice(at, m.index), h("span", { class: "esc" }, code(m[0]))); at = m.index + m[0].length; }
  out.append(t.slice(at));
  return out;
}
const cut = (node, title) => h("span", { class: "cut", title: plain(title) }, node);

// ---------------------------------------------------------------- numbers
const group = (n) => Math.round(n).toLocaleString("en-US");
const p3 = (x) => x === 0 ? "0" : x >= 1e30 ? "∞" : Math.abs(x) >= 1e5 ? x.toExponential(1).replace("e+", "e") : Math.abs(x) >= 1000 ? group(x) : Math.abs(x) >= 100 ? x.toFixed(0) : Math.abs(x) >= 10 ? x.toFixed(1) : Math.abs(x) >= 0.01 ? x.toFixed(2) : Math.abs(x) >= 1e-4 ? x.toFixed(4) : x.toExponential(1);
const ns = (x) => x >= 1e9 ? (x / 1e9).toFixed(2) + "\u00a0s" : x >= 1e6 ? (x / 1e6).toFixed(2) + "\u00a0ms" : x >= 1e3 ? (x / 1e3).toFixed(2) + "\u00a0µs" : Math.round(x) + "\u00a0ns";
const us = (x) => (x / 1000).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const bytes = (x) => x >= 2 ** 30 ? (x / 2 ** 30).toFixed(2) + "\u00a0GiB" : x >= 2 ** 20 ? (x / 2 ** 20).toFixed(1) + "\u00a0MiB" : x >= 1024 ? (x / 1024).toFixed(1) + "\u00a0KiB" : x + "\u00a0B";
const when = (t) => t.replace("T", " ").replace("Z", " UTC");
const span = (sec) => sec >= 3600 ? `${Math.floor(sec / 3600)} h ${Math.round(sec % 3600 / 60)} min` : sec >= 60 ? `${Math.floor(sec / 60)} min ${Math.round(sec % 60)} s` : sec + " s";
const plural = (n, one, many) => `${group(n)} ${n === 1 ? one : many || one + "s"}`;

// ---------------------------------------------------------------- data
const D = JSON.parse($("data").textContent);
if (D.schema !== "tribunus.report-page/1") { $("overview-body").textContent = "This page cannot read data of schema " + String(D.schema).slice(0, 60) + "."; throw new Error("schema"); }
const G = D.signatures, C = D.candidates, R = D.receipts;
const nG = G.id.length, nC = C.sig.length, nR = R.candidate.length;
const short = (d, n = 12) => d.slice(0, n);
const sigOf = new Map(G.digest.map((d, i) => [short(d), i]));
const recOf = new Map(R.digest.map((d, i) => [short(d), i]));
const ofSig = Array.from({ length: nG }, () => []), ofCand = Array.from({ length: nC }, () => []);
for (let i = 0; i < nC; i++) ofSig[C.sig[i]].push(i);
for (let i = 0; i < nR; i++) ofCand[R.candidate[i]].push(i);
const candOf = new Map(C.sig.map((g, i) => [g + "/" + C.name[i], i]));
const chosenSet = new Set(G.chosen.filter((c) => c >= 0));
const fullName = (c) => G.id[C.sig[c]] + "/" + C.name[c];
const outcome = (c) => D.outcomes[C.outcome[c]];
const share = (c) => G.budget_ns[C.sig[c]] ? C.time_ns[c] / G.budget_ns[C.sig[c]] : 0;
const staged = (g) => D.image.regions[G.region[g]].staged;
const STOPPED = ["rejected", "crashed", "timed out", "mistrusted"].map((v) => D.verdicts.indexOf(v));       // verdicts that end a candidate's way
const none = () => D.outcomes.map(() => 0);
// How often each phase launches each signature; several phases may share one.
const launches = D.phases.map((p) => { const m = new Map(); for (const b of p.blocks) for (const r of b.rows) m.set(r.sig, (m.get(r.sig) || 0) + b.repeat); return m; });
const lacks = (pi) => [...launches[pi].keys()].some((g) => G.chosen[g] < 0);
const reasonOf = (k) => k < 0 ? null : { cls: D.strings[D.reasons[k].class], text: D.strings[D.reasons[k].text], figures: D.reasons[k].figures.map(([a, b, d]) => [D.strings[a], b, d]), check: D.reasons[k].check };
const sigHref = (g) => "#signature/" + short(G.digest[g]);
const candHref = (c) => sigHref(C.sig[c]) + "/candidate/" + C.name[c];
const recHref = (r) => "#receipt/" + short(R.digest[r]);
const say = (text) => { $("live").textContent = text; };
const empty = (text) => h("div", { class: "empty" }, text);

function copyable(text, shown) {
  return h("button", { class: "digest", type: "button", title: plain(text), "aria-label": "Copy " + plain(shown || text), on: { click: (e) => copy(text, e.currentTarget) } }, shown || text);
}
const digest = (d, n = 16) => d ? copyable("sha256:" + d, n ? d.slice(0, n) + "…" : d) : h("span", { class: "muted" }, "none");
async function copy(text, el) {
  try { await navigator.clipboard.writeText(text); }
  catch { const a = h("textarea", { css: { position: "fixed", opacity: 0 } }); a.value = text; document.body.append(a); a.select(); document.execCommand("copy"); a.remove(); }
  el.classList.add("done"); say("Copied");
  setTimeout(() => el.classList.remove("done"), 1400);
}
// A line breaks between its words, never after the dashes of an option.
const words = (text) => text.split(" ").flatMap((w, k) => [k ? " " : "", h("span", { class: "word" }, w)]);
function command(text) {
  const b = h("button", { class: "button", type: "button", on: { click: (e) => { copy(text, e.currentTarget); e.currentTarget.textContent = "Copied"; setTimeout(() => { b.textContent = "Copy"; }, 1400); } } }, "Copy");
  return h("div", { class: "cmd" }, h("code", {}, words(text)), b);
}
// Only words from this alphabet may stand in a line that people paste into a shell.
const SAFE = /^[A-Za-z0-9@%+=:,.\/_-]+$/;
const repro = (template, values) => template.replace(/\{(\w+)\}/g, (_, k) => SAFE.test(String(values[k])) ? String(values[k]) : "'" + String(values[k]).replace(ODD, "").replace(/'/g, "'\\''") + "'");

const pairs = (rows) => h("dl", { class: "pairs" }, rows.filter(Boolean).map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v))));
