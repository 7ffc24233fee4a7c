// ---------------------------------------------------------------- panel
let opener = null;
function open(state, eyebrow, title, kids) {
  const p = $("panel"), was = p.hidden;
  if (was) opener = document.activeElement;
  p.dataset.state = state;
  p.replaceChildren(h("div", { class: "bar-top" }, h("span", { class: "cut" }, eyebrow), h("button", { class: "quiet", type: "button", "aria-label": "Copy link", on: { click: (e) => copy(location.hash, e.currentTarget) } }, "Copy link"), h("button", { class: "quiet", type: "button", on: { click: close } }, "Close")), h("h2", { id: "panel-title" }, glyph(state), title), ...kids.filter(Boolean));
  p.hidden = false; p.scrollTop = 0;
  p.focus({ preventScroll: true });
}
function close() {
  const p = $("panel");
  if (p.hidden) return;
  p.hidden = true;
  if (/^#(receipt\/|signature\/.*\/candidate)/.test(location.hash)) history.replaceState(null, "", location.hash.startsWith("#receipt/") ? "#receipts" : location.hash.replace(/\/candidate.*/, ""));
  if (opener && opener.isConnected) opener.focus({ preventScroll: true });
}
const figures = (r) => h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Figure"), h("th", { class: "n", scope: "col" }, "Seen"), h("th", { class: "n", scope: "col" }, "Allowed"))), h("tbody", {}, r.figures.map(([a, b, d]) => h("tr", {}, h("td", {}, a), h("td", { class: "n" }, h("b", {}, b)), h("td", { class: "n" }, d)))));
const reproOf = (i) => { const c = R.candidate[i], v = { receipt: short(R.digest[i]), signature: G.id[C.sig[c]], candidate: C.name[c], check: D.checks[R.check[i]], vector: R.family[i] < 0 ? "all" : D.families[R.family[i]], seed: "0x" + R.seed[i].toString(16) }; return [repro(D.repro.short, v), repro(D.repro.pytest, v)]; };
function openCandidate(c) {
  const g = C.sig[c], o = outcome(c), r = reasonOf(C.reason[c]), recs = ofCand[c];
  const steps = D.checks.map((name, k) => {
    const mine = recs.filter((i) => R.check[i] === k), bad = mine.find((i) => STOPPED.includes(R.verdict[i]));
    const passed = mine.length || (D.left_out && (o === "admitted" || k < C.check[c]));
    const st = bad !== undefined ? D.verdicts[R.verdict[bad]] : !passed ? "not reached" : mine.length ? D.verdicts[R.verdict[mine[0]]] : "passed";
    return h("li", { "data-state": st }, h("b", {}, name), h("span", { class: "state" }, st === "staged" ? "stand-in" : st));
  });
  const decisive = recs.find((i) => STOPPED.includes(R.verdict[i])) ?? recs[0];
  open(o, [G.id[g], " › ", C.name[c]], o === "rejected" ? `Rejected by ${D.checks[C.check[c]]}` : ["crashed", "timed out", "mistrusted"].includes(o) ? `${o[0].toUpperCase() + o.slice(1)} in ${D.checks[C.check[c]]}` : o === "staged" ? "Staged" : o === "not reached" ? "Not judged" : chosenSet.has(c) ? "Admitted and chosen" : "Admitted", [
    h("p", { class: "say" }, r ? r.text + "." : o === "staged" ? "Passed oracle, shape and layout on a stand-in; timing and replay wait for a device host." : o === "not reached" ? "Some of its checks did not run." : `${p3(share(c))} of the time budget, ${p3(C.error[c])} of the error budget.`),
    h("ol", { class: "steps" }, steps),
    mini(c),
    r ? [h("h3", {}, "Figures"), figures(r)] : null,
    decisive !== undefined ? [h("h3", {}, r ? "Reproduce the refusal" : "Reproduce"), command(reproOf(decisive)[0]), command(reproOf(decisive)[1])] : null,
    C.warm[c].length ? [h("h3", {}, "Timing"), timing(c)] : null,
    h("h3", {}, "Candidate"), pairs([["Configuration", D.strings[C.config[c]]], ["Backend", D.backends[C.backend[c]]], ["Artifact", digest(C.digest[c], 32)], C.bytes[c] ? ["Size", bytes(C.bytes[c])] : null, ["Round", C.round[c]], ["Serves", h("a", { href: sigHref(g) }, G.id[g])], ["Model name", foreign(G.name[g], 200)]]),
    h("h3", {}, plural(recs.length, "receipt")), h("table", {}, h("tbody", {}, recs.map((i) => h("tr", {}, h("td", {}, stateOf(D.verdicts[R.verdict[i]])), h("td", {}, D.checks[R.check[i]], R.family[i] < 0 ? "" : h("span", { class: "muted" }, " " + D.families[R.family[i]])), h("td", { class: "n" }, R.index[i] !== "" ? p3(R.error[i]) : ""), h("td", { class: "n mono" }, h("a", { href: recHref(i) }, short(R.digest[i])))))))].flat(2));
}
// The field again, small and silent: where this candidate stands among its rivals.
function mini(c) {
  const g = C.sig[c], W = Math.min(500, innerWidth - 36), H = 132, PW = W - 84, X = (v) => kx(v) * PW, Y = (v) => H - 18 - ky(v) * (H - 22);
  const at = (q) => [C.time_ns[q] ? X(share(q)) : PW + 18 + 26 * Math.min(2, Math.max(0, C.check[q] < 0 ? 1 : C.check[q])), Y(C.error[q])];
  const dot = (q) => { const [x, y] = at(q), o = outcome(q); return o === "admitted" ? s("circle", { class: "pt admitted" + (q === c ? " me" : ""), "data-state": o, cx: x, cy: y, r: 3.5 }) : s("svg", { class: "pt" + (q === c ? " me" : ""), "data-state": o, x: x - 4, y: y - 4, width: 8, height: 8, viewBox: "0 0 16 16" }, s("use", { href: "#g-" + o.replace(" ", "-") })); };
  const [mx, my] = at(c);
  return [h("h3", {}, "Among ", h("a", { href: sigHref(g) }, plural(ofSig[g].length, "candidate"))), s("svg", { class: "mini", width: W, height: H, "aria-hidden": "true" },
    s("rect", { class: "inside", x: 0, y: Y(1), width: X(1), height: Y(0.005) - Y(1) }), s("line", { class: "budget", x1: 0, x2: W, y1: Y(1), y2: Y(1) }), s("line", { class: "budget", x1: X(1), x2: X(1), y1: 2, y2: H - 18 }), s("line", { class: "grid", x1: 0, x2: W, y1: H - 18, y2: H - 18 }), s("line", { class: "grid", x1: PW + 5, x2: PW + 5, y1: 2, y2: H - 18 }),
    s("text", { x: X(1), y: H - 3, "text-anchor": "middle", class: "strong" }, "time budget"), s("text", { x: W, y: H - 3, "text-anchor": "end" }, "never timed"), s("text", { x: 0, y: Y(1) - 5, class: "strong" }, "error budget"),
    ofSig[g].filter((q) => q !== c).map(dot), dot(c), s("circle", { class: "hot", cx: mx, cy: my, r: 8 }))];
}
function timing(c) {
  const q = [...C.warm[c], ...C.cold[c]], b = G.budget_ns[C.sig[c]], W = Math.min(500, innerWidth - 36), lo = Math.min(...q) * 0.985, top = Math.max(...q) * 1.015;
  const hi = b > top && b < top * 1.25 ? b * 1.02 : top, sx = (t) => 6 + (Math.min(t, hi * 1.5) - lo) / (hi - lo) * (W - 12), inView = b <= hi;
  const row = (name, v) => h("tr", {}, h("td", {}, name), [v[1], v[10], v[19], v[20]].map((x) => h("td", { class: "n" }, us(x))));
  return h("div", {}, strip(c, W, sx, true, inView), s("svg", { width: W, height: 18, "aria-hidden": "true" }, s("text", { x: 6, y: 12 }, ns(lo)), s("text", { x: W - 6, y: 12, "text-anchor": "end" }, inView && sx(b) > W - 90 ? "" : ns(hi)), inView ? s("text", { x: Math.min(sx(b), W - 34), y: 12, "text-anchor": "middle", class: "strong" }, "budget " + ns(b)) : s("text", { x: W / 2, y: 12, "text-anchor": "middle" }, `budget ${ns(b)}, ${b > hi ? "to the right" : "to the left"}`)),
    h("p", { class: "legend" }, h("span", {}, s("svg", { width: 10, height: 10 }, s("circle", { cx: 5, cy: 5, r: 3.5, fill: "var(--accent)", "fill-opacity": .6 })), "warm"), h("span", {}, s("svg", { width: 10, height: 10 }, s("circle", { cx: 5, cy: 5, r: 3.5, fill: "none", stroke: "var(--ink-3)" })), "cold"), "a dot is a twentieth of the calls; ticks are p50 and p99"),
    h("table", { css: { "margin-top": "8px" } }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "µs"), ["p5", "p50", "p95", "p99"].map((x) => h("th", { class: "n", scope: "col" }, x)))), h("tbody", {}, row("warm", C.warm[c]), C.cold[c].length ? row("cold", C.cold[c]) : null)));
}
function openReceipt(i) {
  const c = R.candidate[i], v = D.verdicts[R.verdict[i]], r = reasonOf(R.reason[i]), k = R.check[i], num = R.index[i] !== "";
  open(v, ["receipt ", h("span", { class: "mono" }, short(R.digest[i]))], `${D.checks[k][0].toUpperCase() + D.checks[k].slice(1)}: ${v}`, [
    h("p", { class: "say" }, h("a", { href: candHref(c) }, fullName(c))),
    h("p", { class: "soft" }, r ? r.text + "." : v === "staged" ? `Judged on a stand-in (${D.executors[R.executor[i]]}), which can refuse but not admit.` : ""),
    r ? [h("h3", {}, "Figures"), figures(r)] : null,
    num ? [h("h3", {}, "Worst element"), ruler(i), pairs([["Index", h("span", { class: "mono" }, `[${R.index[i]}]`)], ["Candidate", h("span", { class: "mono" }, String(R.got[i]))], ["Golden", h("span", { class: "mono" }, String(R.golden[i]))], ["Error", `${p3(R.ulp[i])} ulp`], ["Its budget", `${p3(R.budget_ulp[i])} ulp`], ["Error / budget", h("b", {}, p3(R.error[i]))]])] : null,
    h("h3", {}, "Inputs"), pairs([["Vector", R.family[i] < 0 ? "all vectors of the signature" : D.families[R.family[i]]], ["Seed", copyable("0x" + R.seed[i].toString(16))], ["Shape", G.shape[C.sig[c]]], ["Cases", R.mistrusted[i] ? `${R.cases[i]}, and ${R.mistrusted[i]} that could not have said no` : R.cases[i]], ["Elements", group(R.elements[i])]]),
    h("h3", {}, "Reproduce"), ...reproOf(i).map(command),
    h("h3", {}, "Record"), pairs([["Executor", D.executors[R.executor[i]]], ["Took", `${group(R.took_ms[i])} ms`], ["When", when(new Date(Date.parse(D.session.started) + R.at_ms[i]).toISOString().slice(0, 19) + "Z")], ["Digest", digest(R.digest[i], 0)], ["Leaf", `${group(i)} of ${group(nR)} in the ledger`]]),
  ].flat());
}
// Where the worst element lies on a line on which the golden is the centre and the budget is the band.
function ruler(i) {
  const W = Math.min(500, innerWidth - 36), e = R.error[i], mid = W / 2, unit = W * .3, x = mid + Math.sign(R.got[i] - R.golden[i] || 1) * Math.min(unit * (e <= 1 ? e : 1 + Math.log10(e) / 8), W / 2 - 8);
  return s("svg", { width: W, height: 46, role: "img", "aria-label": `error is ${p3(e)} of the budget` }, s("rect", { x: mid - unit, y: 10, width: unit * 2, height: 16, fill: "var(--admitted)", opacity: .14, rx: 2 }), s("line", { class: "grid", x1: 0, x2: W, y1: 18, y2: 18 }), s("line", { class: "budget", x1: mid, x2: mid, y1: 6, y2: 30 }), s("text", { x: mid, y: 43, "text-anchor": "middle" }, "golden"), s("text", { x: mid - unit, y: 43, "text-anchor": "middle" }, "− budget"), s("text", { x: mid + unit, y: 43, "text-anchor": "middle" }, "+ budget"), s("circle", { cx: x, cy: 18, r: 5, fill: e > 1 ? "var(--rejected)" : "var(--admitted)" }));
}

// ---------------------------------------------------------------- find
function find() {
  const input = $("q"), list = $("found");
  let hits = [], at = 0;
  const names = C.sig.map((_, c) => fullName(c).toLowerCase());
  const search = (raw) => {
    const m = /\[([^\]]+)\]/.exec(raw), q = (m ? m[1] : raw).trim().toLowerCase().replace(/^sha256:/, ""), out = [];
    if (!q) return out;
    const push = (score, o) => out.push({ score, ...o });
    for (let g = 0; g < nG; g++) { const t = (G.id[g] + " " + G.op[g] + " " + G.name[g]).toLowerCase(); if (G.id[g].startsWith(q) || G.digest[g].startsWith(q)) push(0, { g }); else if (t.includes(q)) push(3, { g }); }
    for (let c = 0; c < nC && out.length < 400; c++) { const n = names[c]; if (n === q) push(-2, { c }); else if (n.startsWith(q) || C.name[c] === q) push(1, { c }); else if (q.length > 3 && (n.includes(q) || C.digest[c].startsWith(q))) push(2, { c }); }
    if (/^[0-9a-f]{4,64}$/.test(q)) for (let i = 0; i < nR; i++) if (R.digest[i].startsWith(q)) push(-1, { r: i });
    return out.sort((a, b) => a.score - b.score).slice(0, 10);
  };
  const href = (x) => x.c !== undefined ? candHref(x.c) : x.g !== undefined ? sigHref(x.g) : recHref(x.r);
  const item = (x, k) => {
    const st = x.c !== undefined ? outcome(x.c) : x.r !== undefined ? D.verdicts[R.verdict[x.r]] : "not reached";
    const line = x.c !== undefined ? [h("span", { class: "cut" }, fullName(x.c)), h("span", { class: "cut" }, C.reason[x.c] >= 0 ? (C.check[x.c] < 0 ? "" : D.checks[C.check[x.c]] + ": ") + reasonOf(C.reason[x.c]).text : `${st}, ${D.strings[C.config[x.c]]}`)] : x.g !== undefined ? [h("span", { class: "cut" }, G.id[x.g]), h("span", { class: "cut" }, "signature, ", foreign(G.name[x.g], 70))] : [h("span", { class: "cut mono" }, short(R.digest[x.r], 20)), h("span", { class: "cut" }, `receipt, ${D.checks[R.check[x.r]]} of ${fullName(R.candidate[x.r])}`)];
    return h("li", { role: "option", id: "hit" + k, "aria-selected": String(k === at), "data-state": x.g !== undefined ? null : st, on: { pointerdown: (e) => { e.preventDefault(); go(x); } } }, x.g !== undefined ? h("span", {}) : glyph(st), line);
  };
  const paint = () => {
    const on = !!input.value.trim();
    list.hidden = !on; input.setAttribute("aria-expanded", String(on));
    list.replaceChildren(...(hits.length ? hits.map(item) : [h("li", { class: "none" }, "Nothing has that name or digest.")]));
    hits.length && on ? input.setAttribute("aria-activedescendant", "hit" + at) : input.removeAttribute("aria-activedescendant");
  };
  const go = (x) => { input.value = ""; hits = []; paint(); input.blur(); location.hash = href(x); };
  input.addEventListener("input", () => { hits = search(input.value); at = 0; paint(); });
  input.addEventListener("blur", () => setTimeout(() => { list.hidden = true; }, 100));
  input.addEventListener("focus", paint);
  input.addEventListener("keydown", (e) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") { e.preventDefault(); at = (at + (e.key === "ArrowDown" ? 1 : -1) + hits.length) % (hits.length || 1); paint(); }
    else if (e.key === "Enter" && hits[at]) { e.preventDefault(); go(hits[at]); }
    else if (e.key === "Escape") { input.value = ""; hits = []; paint(); input.blur(); }
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { e.preventDefault(); input.focus(); }
    else if (e.key === "Escape" && document.activeElement !== input) close();
  });
}

// ---------------------------------------------------------------- addresses
function route() {
  let hash = location.hash;
  try { hash = decodeURIComponent(hash); } catch { /* keep as it is */ }
  const [path, query] = [hash.slice(1).split("?")[0], location.hash.split("?")[1] || ""], part = path.split("/");
  const to = (id) => $(id).scrollIntoView();
  if (part[0] === "signature" && sigOf.has(part[1])) {
    const g = sigOf.get(part[1]), c = part[2] === "candidate" ? candOf.get(g + "/" + part[3]) : undefined;
    if (g !== current) { current = g; showAll = false; redraw(); }
    if (c !== undefined) { if ($("panel").hidden && !routed) to("signatures"); openCandidate(c); }
    else { close(); to("signatures"); }
  } else if (part[0] === "receipt" && recOf.has(part[1])) { if (!routed) to("receipts"); openReceipt(recOf.get(part[1])); }
  else if (part[0] === "receipts") {
    const p = new URLSearchParams(query), one = (k, list) => list.includes(p.get(k)) ? p.get(k) : "";
    if (query) { Object.assign(F, { q: p.get("q") || "", check: one("check", D.checks), verdict: one("verdict", D.verdicts), family: one("vector", D.families), backend: one("backend", D.backends), chosen: p.get("chosen") === "1" }); refilter(); }
    close(); to("receipts");
  } else if (part[0] === "signature" || part[0] === "receipt") say("Nothing in this report has that address.");
  else if (path) { const el = document.querySelector("main > section[id='" + CSS.escape(path) + "']"); if (el) { close(); el.scrollIntoView(); } }
  routed = true;
}
let routed = false;

function frame() {
  $("brand-glyph").firstChild.setAttribute("href", "#g-" + D.verdict.state.replace(" ", "-"));
  $("brand-glyph").parentNode.dataset.state = D.verdict.state;
  const modes = ["", "light", "dark"], root = document.documentElement;
  let m = 0;
  try { m = Math.max(0, modes.indexOf(localStorage.getItem("tribunus-theme") || "")); } catch { /* storage may be closed */ }
  const set = () => { modes[m] ? root.dataset.theme = modes[m] : delete root.dataset.theme; $("theme").textContent = ["Auto", "Light", "Dark"][m]; $("theme").setAttribute("aria-label", ["Auto theme, as the system", "Light theme", "Dark theme"][m]); };
  $("theme").addEventListener("click", () => { m = (m + 1) % 3; set(); try { localStorage.setItem("tribunus-theme", modes[m]); } catch { /* fine */ } });
  set();
  const links = [...document.querySelectorAll(".side a")], counts = { signatures: nG, receipts: nR, baseline: D.baseline ? D.baseline.rows.filter((r) => r.new_ns / r.old_ns - 1 > D.baseline.warn).length || "" : "" };
  links.forEach((a) => { const n = counts[a.getAttribute("href").slice(1)]; if (n !== undefined && n !== "") a.append(h("span", { class: "num" }, group(n))); });
  const seen = new Set(), io = new IntersectionObserver((es) => { for (const e of es) e.isIntersecting ? seen.add(e.target.id) : seen.delete(e.target.id); const now = links.map((a) => a.getAttribute("href").slice(1)).find((id) => seen.has(id)); links.forEach((a) => { if (a.getAttribute("href") !== "#" + now) return a.removeAttribute("aria-current"); a.setAttribute("aria-current", "true"); const box = a.parentNode; if (box.scrollWidth > box.clientWidth) box.scrollLeft = a.offsetLeft - box.clientWidth / 2 + a.offsetWidth / 2; }); }, { rootMargin: "-80px 0px -60% 0px" });
  document.querySelectorAll("main > section").forEach((x) => io.observe(x));
}

// First what is seen first; then one section a frame; then the address that was asked for.
overview(); frame(); find();
const later = [checks, coverage, signatures, memory, program, receipts, baseline, evidence, approve];
const step = () => { const f = later.shift(); if (f) { f(); later.length ? setTimeout(step) : done(); } };
const done = () => { route(); window.addEventListener("hashchange", route); document.documentElement.dataset.ready = "1"; };
setTimeout(step);
