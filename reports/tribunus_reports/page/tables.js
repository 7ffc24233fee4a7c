// ---------------------------------------------------------------- program
function program() {
  const body = $("program-body");
  if (!D.phases.length) return body.append(empty("The model was not lowered."));
  const map = h("div", { class: "scroller" }), rows = h("div", { css: { "margin-top": "12px" } });
  let sel = 0;
  body.append(map, rows);
  const launched = (p) => plural(p.blocks.reduce((a, b) => a + b.repeat * b.rows.length, 0), "launch", "launches");
  const choice = (p, i) => h("button", { type: "button", "aria-pressed": String(i === sel), on: { click: () => { sel = i; paint(); map.querySelector("[aria-pressed=true]").focus(); } } }, p.name, " ", h("span", { class: "muted" }, [launched(p), p.p50_ns ? ns(p.p50_ns) : ""].filter(Boolean).join(", ")));
  const paint = () => {
    D.edges.length ? paintMap() : map.replaceChildren(h("div", { class: "tabs", role: "group", "aria-label": "Phases" }, D.phases.map(choice)));
    paintRows();
  };
  const paintMap = () => {
    const n = D.phases.length, W = Math.max(Math.min(body.clientWidth, 900), 560), bw = Math.min(168, W / n - 46), bh = 52, gap = n > 1 ? (W - bw * n - 4) / (n - 1) : 0, ord = ["vision", "prefill", "sample", "decode"].filter((x) => D.phases.some((p) => p.name === x));
    const seq = ord.length === n ? ord : D.phases.map((p) => p.name), X = (name) => 2 + seq.indexOf(name) * (bw + gap);
    map.replaceChildren(s("svg", { width: W, height: 96, role: "group", "aria-label": "Phases" },
      D.edges.map(([a, b]) => seq.indexOf(b) === seq.indexOf(a) + 1 ? s("path", { class: "edge", d: `M${X(a) + bw} 28H${X(b) - 1}` }) : s("path", { class: "edge", d: `M${X(a) + bw / 2} ${bh + 3}v12a6 6 0 0 1 -6 6H${X(b) + bw / 2 + 6}a6 6 0 0 1 -6 -6v-10` })),
      seq.map((name) => { const i = D.phases.findIndex((p) => p.name === name), p = D.phases[i], go = () => { sel = i; paint(); }; return s("g", { class: "pnode", role: "button", tabindex: 0, "aria-pressed": String(i === sel), transform: `translate(${X(name)} 2)`, on: { click: go, keydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); go(); map.querySelector("[aria-pressed=true]").focus(); } } } }, s("rect", { class: "pbox", width: bw, height: bh, rx: 8 }), s("title", {}, p.name), s("text", { x: 12, y: 22 }, p.name.length * 7.6 > bw - 20 ? p.name.slice(0, Math.max(1, Math.floor((bw - 28) / 7.6))) + "…" : p.name), s("text", { x: 12, y: 39 }, [bw > 140 || !p.p50_ns ? launched(p) : "", p.p50_ns ? ns(p.p50_ns) : ""].filter(Boolean).join(", "))); }),
    ));
  };
  const paintRows = () => {
    const p = D.phases[sel], took = (g) => G.chosen[g] < 0 ? 0 : C.time_ns[G.chosen[g]];
    const total = p.blocks.reduce((a, b) => a + b.repeat * b.rows.reduce((x, r) => x + took(r.sig), 0), 0);
    rows.replaceChildren(...p.blocks.map((b, bi) => {
      const per = b.rows.reduce((a, r) => a + took(r.sig), 0) * b.repeat;
      const d = h("details", { class: "block", open: b.rows.length > 5 && (bi === 1 || p.blocks.length === 1) }, h("summary", {}, h("b", {}, b.name), h("span", { class: "muted" }, b.repeat > 1 ? `${b.rows.length} operations, ${b.repeat} ×` : plural(b.rows.length, "operation")), h("span", { class: "num" }, per ? `${ns(per)}, ${(per / total * 100).toFixed(0)}\u00a0%` : "no time")));
      const fillIn = () => { if (d.children.length > 1) return; d.append(flow(b, total)); };
      if (d.open) fillIn(); else d.addEventListener("toggle", fillIn, { once: true });
      return d;
    }));
  };
  const flow = (b, total) => {
    // Long edges get the lowest free lane, as in a commit graph; the chain runs down lane 0.
    const long = [];
    b.rows.forEach((r, k) => r.from.forEach((f) => { if (f !== k - 1) long.push({ f, k, lane: 0 }); }));
    long.sort((a, c) => a.f - c.f || c.k - a.k);
    for (const e of long) { let l = 1; while (long.some((o) => o !== e && o.lane === l && o.f < e.k && e.f < o.k)) l++; e.lane = l; }
    const lanes = Math.max(0, ...long.map((e) => e.lane)), x = (l) => 9 + l * 14, RH = 30, W = 20 + lanes * 14;
    return h("div", { class: "flow" }, b.rows.map((r, k) => {
      const g = r.sig, c = G.chosen[g], parts = [];
      if (r.from.includes(k - 1)) parts.push(s("path", { class: "lane", d: `M${x(0)} 0V15` }));
      if (b.rows.some((q, j) => j === k + 1 && q.from.includes(k))) parts.push(s("path", { class: "lane", d: `M${x(0)} 15V${RH}` }));
      for (const e of long) {
        if (e.f === k) parts.push(s("path", { class: "lane", d: `M${x(0)} 15C${x(e.lane)} 15 ${x(e.lane)} 22 ${x(e.lane)} ${RH}` }));
        else if (e.k === k) parts.push(s("path", { class: "lane", d: `M${x(e.lane)} 0C${x(e.lane)} 8 ${x(e.lane)} 15 ${x(0)} 15` }));
        else if (e.f < k && k < e.k) parts.push(s("path", { class: "lane", d: `M${x(e.lane)} 0V${RH}` }));
      }
      const t = c < 0 ? 0 : C.time_ns[c] * b.repeat;
      return h("div", {}, s("svg", { width: W, height: RH, "aria-hidden": "true" }, parts, s("circle", { class: "dot", cx: x(0), cy: 15, r: 4 })),
        h("a", { href: sigHref(g), class: "cut" }, G.op[g]), h("span", { class: "soft opt2" }, cut(foreign(G.name[g], 90), G.name[g])), h("span", { class: "muted opt" }, cut(r.note || G.shape[g], r.note || G.shape[g])), h("span", { class: "opt" }, c < 0 ? h("span", { class: "muted" }, "none") : h("a", { class: "cut", href: candHref(c) }, C.name[c])), t ? h("span", { class: "share num" }, h("span", {}, (t / total * 100).toFixed(1) + "\u00a0%"), h("i", { css: { width: Math.max(1, t / total * 100) + "%" } })) : h("span", {}));
    }));
  };
  paint();
}

// ---------------------------------------------------------------- receipts: a virtual table
const F = { q: "", check: "", verdict: "", family: "", backend: "", chosen: false, sort: "at", down: false };
let refilter = () => {};
function receipts() {
  const body = $("receipts-body");
  if (!nR) return body.append(empty("The ledger of this session is empty."));
  const ROW = 34, hay = C.sig.map((g, c) => (fullName(c) + " " + D.backends[C.backend[c]] + " " + G.name[g] + " " + G.op[g] + " " + D.phases[G.phase[g]].name + " " + (C.reason[c] >= 0 ? reasonOf(C.reason[c]).cls : "")).toLowerCase());
  const why = D.reasons.map((_, k) => { const r = reasonOf(k); return (r.cls + " " + r.text).toLowerCase(); });
  const columns = [
    ["verdict", "Verdict", 118, (i) => R.verdict[i]], ["check", "Check", 92, (i) => R.check[i]], ["cand", "Candidate", 224, (i) => candRank[R.candidate[i]]],
    ["family", "Vector", 92, (i) => R.family[i], "hide-s"], ["error", "Error / budget", 116, (i) => R.error[i], "n hide-s"], ["cases", "Cases", 70, (i) => R.cases[i], "n hide-s"], ["took", "Took, ms", 86, (i) => R.took_ms[i], "n hide-s"], ["at", "When", 92, (i) => R.at_ms[i], "n hide-s"], ["digest", "Receipt", 124, (i) => i, "hide-s mono"]];
  const candRank = new Int32Array(nC);
  C.sig.map((_, c) => c).sort((a, b) => fullName(a) < fullName(b) ? -1 : 1).forEach((c, k) => { candRank[c] = k; });
  let view = [], top = -1;
  const input = h("input", { type: "search", placeholder: "Name, operation, reason, digest", "aria-label": "Search receipts", on: { input: () => { F.q = input.value; apply(); remember(); } } });
  const chips = D.verdicts.map((v) => h("button", { class: "chip", type: "button", "data-state": v, "aria-pressed": "false", on: { click: () => { F.verdict = F.verdict === v ? "" : v; apply(); remember(); } } }, glyph(v), v, h("span", { class: "num" })));
  const select = (key, label, list) => h("select", { "aria-label": label, "data-key": key, on: { change: (e) => { F[key] = e.target.value; apply(); remember(); } } }, h("option", { value: "" }, label), list.map((x) => h("option", { value: x }, x)));
  const selects = [select("check", "Any check", D.checks), select("family", "Any vector", D.families), select("backend", "Any backend", D.backends)];
  const only = h("input", { type: "checkbox", on: { change: () => { F.chosen = only.checked; apply(); remember(); } } });
  const clear = h("button", { class: "quiet", type: "button", hidden: true, on: { click: () => { Object.assign(F, { q: "", check: "", verdict: "", family: "", backend: "", chosen: false }); apply(); remember(); } } }, "Clear");
  const heads = columns.map(([key, label, , , cls]) => h("th", { scope: "col", class: cls }, h("button", { type: "button", on: { click: () => { if (F.sort === key) F.down = !F.down; else { F.sort = key; F.down = key === "error" || key === "took"; } apply(true); } } }, label)));
  const tb = h("tbody", {}), before = h("tr", { class: "gap", "aria-hidden": "true" }, h("td", {})), after = h("tr", { class: "gap", "aria-hidden": "true" }, h("td", {}));
  const table = h("table", { "aria-label": "Receipts" }, h("colgroup", {}, columns.map(([, , w, , cls]) => h("col", { class: cls && cls.includes("hide-s") ? "hide-s" : "", css: { width: w + "px" } }))), h("thead", {}, h("tr", { "aria-rowindex": 1 }, heads)), tb);
  const box = h("div", { class: "vt", tabindex: -1 }, table), count = h("p", { class: "count", role: "status" });
  body.append(h("div", { class: "filters" }, input, selects, h("label", {}, only, "chosen kernels only"), clear), h("div", { class: "filters" }, chips), box, count);
  const pool = [];
  const makeRow = () => { const g = s("svg", { class: "glyph", "aria-hidden": "true" }), use = s("use", {}), word = document.createTextNode(""), st = h("span", { class: "state" }, g, word), a = h("a", {}), cells = columns.map(([, , , , cls]) => h("td", { class: cls })); g.append(use); cells[0].append(st); cells[2].append(a); const tr = h("tr", {}, cells); return { tr, st, use, word, a, cells }; };
  const put = (row, i, k) => {
    const v = D.verdicts[R.verdict[i]], c = R.candidate[i], t = row.cells;
    if (row.v !== v) { row.v = v; row.st.dataset.state = v; row.use.setAttribute("href", "#g-" + v.replace(" ", "-")); row.word.data = v; }      // <use> is dear: touch it only on change
    row.tr.setAttribute("aria-rowindex", k + 2);
    t[1].textContent = D.checks[R.check[i]]; row.a.textContent = fullName(c); row.a.href = recHref(i);
    t[3].textContent = R.family[i] < 0 ? "—" : D.families[R.family[i]]; t[4].textContent = R.index[i] !== "" ? p3(R.error[i]) : "—"; t[5].textContent = R.cases[i]; t[6].textContent = group(R.took_ms[i]); t[7].textContent = clock(R.at_ms[i]); t[8].textContent = short(R.digest[i]);
    row.i = i;
  };
  const start = Date.parse(D.session.started), clock = (ms) => new Date(start + ms).toISOString().slice(11, 19);
  // Rows stay with their receipt while they are visible: those that leave at one end are refilled and moved to the other.
  const paint = (force) => {
    const want = Math.min(view.length, Math.ceil(box.clientHeight / ROW) + 10), first = Math.max(0, Math.min(Math.floor(box.scrollTop / ROW) - 5, view.length - want));
    const d = first - top;
    if (!force && !d) return;
    if (force || Math.abs(d) >= want || pool.length !== want) {
      while (pool.length < want) pool.push(makeRow());
      const keep = pool.length === want && tb.children.length === want + 2;
      pool.length = want;
      pool.forEach((row, k) => put(row, view[first + k], first + k));
      if (!keep) tb.replaceChildren(before, ...pool.map((r) => r.tr), after);
    } else if (d > 0) for (let k = 0; k < d; k++) { const row = pool.shift(), at = top + want + k; put(row, view[at], at); after.before(row.tr); pool.push(row); }
    else for (let k = 1; k <= -d; k++) { const row = pool.pop(), at = top - k; put(row, view[at], at); before.after(row.tr); pool.unshift(row); }
    top = first;
    before.firstChild.style.height = first * ROW + "px"; after.firstChild.style.height = (view.length - first - want) * ROW + "px";
  };
  let tick = 0;
  box.addEventListener("scroll", () => { if (!tick) tick = requestAnimationFrame(() => { tick = 0; paint(); }); }, { passive: true });
  tb.addEventListener("click", (e) => { if (e.target.closest("a")) return; const row = pool.find((r) => r.tr.contains(e.target)); if (row) location.hash = recHref(row.i); });
  tb.addEventListener("keydown", (e) => {
    const d = { ArrowDown: 1, ArrowUp: -1, PageDown: 16, PageUp: -16 }[e.key];
    if (!d) return;
    const row = pool.find((r) => r.tr.contains(document.activeElement));
    if (!row) return;
    e.preventDefault();
    const k = Math.min(view.length - 1, Math.max(0, view.indexOf(row.i) + d)), y = k * ROW, headH = 36;
    if (y < box.scrollTop) box.scrollTop = y; else if (y > box.scrollTop + box.clientHeight - ROW - headH) box.scrollTop = y - box.clientHeight + ROW + headH;
    paint();
    const next = pool.find((r) => r.i === view[k] && r.tr.isConnected);
    if (next) next.a.focus({ preventScroll: true });
  });
  const remember = () => {
    const p = new URLSearchParams(Object.entries({ check: F.check, verdict: F.verdict, vector: F.family, backend: F.backend, chosen: F.chosen ? "1" : "", q: F.q }).filter(([, v]) => v)).toString();
    history.replaceState(null, "", "#receipts" + (p ? "?" + p : ""));
  };
  const apply = (keep) => {
    const words = F.q.toLowerCase().split(/\s+/).filter(Boolean), phrase = F.q.toLowerCase().trim();
    const hex = words.length === 1 && /^[0-9a-f]{4,64}$/.test(words[0]) ? words[0] : null;
    const okC = new Uint8Array(nC);
    const be = D.backends.indexOf(F.backend), ck = D.checks.indexOf(F.check), fam = D.families.indexOf(F.family), vd = D.verdicts.indexOf(F.verdict);
    for (let c = 0; c < nC; c++) okC[c] = (be < 0 || C.backend[c] === be) && (!F.chosen || chosenSet.has(c)) ? (!words.length || words.every((w) => hay[c].includes(w)) ? 2 : 1) : 0;
    const out = [], tally = new Array(D.verdicts.length).fill(0);
    for (let i = 0; i < nR; i++) {
      const o = okC[R.candidate[i]];
      if (!o || (ck >= 0 && R.check[i] !== ck) || (fam >= 0 && R.family[i] !== fam)) continue;
      if (o < 2 && !(R.reason[i] >= 0 && why[R.reason[i]].includes(phrase)) && !(hex && R.digest[i].startsWith(hex))) continue;
      tally[R.verdict[i]]++;
      if (vd < 0 || R.verdict[i] === vd) out.push(i);
    }
    const key = columns.find((c) => c[0] === F.sort)[3], sign = F.down ? -1 : 1, vals = new Float64Array(nR);
    for (const i of out) vals[i] = key(i);
    out.sort((a, b) => sign * (vals[a] - vals[b]) || a - b);
    view = out;
    chips.forEach((b, k) => { b.lastChild.textContent = group(tally[k]); b.setAttribute("aria-pressed", String(F.verdict === D.verdicts[k])); b.hidden = !tally[k] && F.verdict !== D.verdicts[k]; });
    heads.forEach((th, k) => columns[k][0] === F.sort ? th.setAttribute("aria-sort", F.down ? "descending" : "ascending") : th.removeAttribute("aria-sort"));
    if (input.value !== F.q) input.value = F.q;
    selects.forEach((x) => { x.value = F[x.dataset.key]; });
    only.checked = F.chosen;
    clear.hidden = !(F.q || F.check || F.verdict || F.family || F.backend || F.chosen);
    table.setAttribute("aria-rowcount", view.length + 1);
    count.textContent = (view.length === nR ? plural(nR, "receipt") : `${group(view.length)} of ${plural(nR, "receipt")}`) + (D.left_out ? `; ${group(D.left_out)} passed receipts of candidates that were not chosen are left out here, report.json has all` : "");
    if (!keep) box.scrollTop = 0;
    table.hidden = !view.length;
    if (!view.length && !box.querySelector(".empty")) box.append(h("div", { class: "empty", css: { margin: "40px" } }, "No receipt matches. ", h("button", { class: "button", type: "button", on: { click: () => clear.click() } }, "Clear filters")));
    else if (view.length) box.querySelector(".empty")?.remove();
    paint(true);
  };
  refilter = apply;
  new ResizeObserver(() => paint(true)).observe(box);
  apply();
}

// ---------------------------------------------------------------- baseline, evidence, approve
function baseline() {
  const body = $("baseline-body"), b = D.baseline;
  if (!b) return body.append(empty("No baseline report was given. Pass one with --baseline report.json."));
  const rel = (r) => r.new_ns / r.old_ns - 1, rows = [...b.rows].sort((x, y) => rel(y) - rel(x)), big = rows.filter((r) => Math.abs(rel(r)) >= 0.012), slow = rows.filter((r) => rel(r) > b.warn);
  const max = Math.max(0.1, ...rows.map((r) => Math.abs(rel(r))));
  const pct = (x) => (x >= 0 ? "+" : "−") + Math.abs(x * 100).toFixed(1) + "\u00a0%";
  const tr = (r) => { const d = rel(r), worse = d > b.warn; return h("tr", {}, h("td", {}, h("a", { href: sigHref(r.sig) }, G.id[r.sig])), h("td", { class: "soft hide-s" }, r.old === r.new ? r.new : [r.old, h("span", { class: "muted" }, " → "), r.new]), h("td", { class: "n hide-s" }, us(r.old_ns)), h("td", { class: "n hide-s" }, us(r.new_ns)), h("td", {}, h("div", { class: "delta", "data-worse": worse }, h("i", { css: d >= 0 ? { left: "50%", width: d / max * 50 + "%" } : { right: "50%", width: -d / max * 50 + "%" } }))), h("td", { class: "n" }, worse ? h("b", {}, pct(d)) : pct(d)), h("td", { class: "n hide-s" }, h("span", { class: "muted" }, p3(r.old_error) + " → "), p3(r.new_error))); };
  const tb = h("tbody", {}, big.map(tr)), rest = rows.filter((r) => !big.includes(r));
  body.append(h("p", { class: "lede" }, `Compared with ${b.tool} of ${when(b.at)}, image `, digest(b.image, 12), `: ${plural(slow.length, "kernel")} slower than the ${b.warn * 100}\u00a0% that the policy allows, ${rows.filter((r) => rel(r) < -0.012).length} faster, ${rest.length} unchanged. `, "Different around it: " + b.changed.map(([n, x, y]) => `${n} ${x} → ${y}`).join(", ") + ".", b.gone.length ? ` Gone: ${b.gone.join(", ")}.` : "", b.new.length ? ` New: ${b.new.join(", ")}.` : ""),
    h("div", { class: "scroller" }, h("table", {}, h("thead", {}, h("tr", {}, [["Signature"], ["Kernel", "hide-s"], ["Was, µs", "n hide-s"], ["Now, µs", "n hide-s"], ["Faster | slower"], ["Change", "n"], ["Error / budget", "n hide-s"]].map(([t, c]) => h("th", { class: c, scope: "col" }, t)))), tb)),
    rest.length ? h("button", { class: "quiet more", type: "button", on: { click: (e) => { tb.append(...rest.map(tr)); e.currentTarget.remove(); } } }, `Show ${rest.length} within ±1.2\u00a0%`) : "");
}
// Another engine's outputs of the same case: a second opinion beside the program check.
const SPOKE = { agrees: "passed", disagrees: "crashed", "not compared": "not reached" };
const witness = ([verdict, who, said]) => h("p", { class: "witness", "data-verdict": verdict }, h("b", {}, "Witness"), ` ${who} `, stateOf(SPOKE[verdict], verdict), `: ${said}`);
function evidence() {
  $("evidence-body").append(h("ol", { class: "chain" }, D.evidence.map((e) => h("li", { "data-kind": e.kind }, h("b", {}, e.title), h("span", {}, e.digest ? digest(e.digest, 0) : h("span", { class: "muted" }, "not yet")), h("span", {}), h("div", {}, h("p", {}, e.what), e.witness ? witness(e.witness) : null), e.check ? command(e.check) : null))));
}
function approve() {
  const body = $("approve-body"), a = D.approve, need = D.need;
  body.append(h("div", { class: "card approve" }, a ? [
    h("p", {}, h("b", {}, `${need.have} of ${need.threshold} signatures.`), " ", h("span", { class: "muted" }, need.missing.length ? "Missing: " + need.missing.join(", ") + "." : "Nothing is missing.")),
    h("ol", {}, ["Check the file itself: run the verify command of the last envelope above.", "Compare the image id it prints with the one below, all 64 digits; the command does so too.", "Then sign. Your key stays on your machine; this page sends nothing."].map((t) => h("li", {}, t))),
    h("h3", { class: "no-print" }, "Approve"), command(a.approve), h("h3", { class: "no-print" }, "Or decline, with a reason that stays in the evidence"), h("div", { class: "no-print" }, command(a.decline)),
  ] : h("p", {}, "There is no image to approve. ", h("a", { href: "#overview" }, "See why."))),
  h("div", { class: "sign" }, ["Reviewer", "Date", "Signature"].map((t) => h("div", {}, t))));
  $("foot").append(`Report model sha256:${D.made.report}, made ${when(D.made.at)} by ${D.made.tool}. `, h("span", { class: "no-print" }, "Keys: / find, Esc close, arrow keys walk pictures and receipts."));
}
