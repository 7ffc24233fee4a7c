// ---------------------------------------------------------------- overview
function overview() {
  const chosen = [...chosenSet];
  const worst = chosen.reduce((a, c) => C.error[c] > (a < 0 ? -1 : C.error[a]) ? c : a, -1);
  const admitted = C.outcome.filter((o) => o === 0).length;
  const whole = D.phases.filter((p) => p.p99_ns), last = whole.find((p) => p.name === "decode") || whole[whole.length - 1] || D.phases[D.phases.length - 1];
  const arena = Math.max(0, ...D.memory.map((m) => m.arena));
  const fig = (k, v, unit, note) => h("div", {}, h("dt", {}, k), h("dd", {}, v, unit && h("small", {}, " " + unit)), h("dd", {}, note));
  const body = $("overview-body");
  body.append(h("ul", { class: "regions" }, D.image.regions.map((r) => h("li", {}, stateOf(r.state), h("b", {}, r.target), h("span", { class: "muted" }, r.note)))));
  if (!nC) return body.append(h("div", { css: { "margin-top": "28px" } }, facts()));
  body.append(h("dl", { class: "figures" },
    fig("Admitted", group(admitted), "of " + group(nC), `candidates, for ${plural(nG, "signature")}`),
    fig("Largest error", worst < 0 ? "—" : p3(C.error[worst]), worst < 0 ? "" : "of its budget", worst < 0 ? "" : h("a", { href: candHref(worst) }, fullName(worst))),
    fig(`One ${last ? last.name : "replay"}, p99`, last && last.p99_ns ? ns(last.p99_ns).split("\u00a0")[0] : "—", last && last.p99_ns ? ns(last.p99_ns).split("\u00a0")[1] : "", last && last.p99_ns ? `p50 ${ns(last.p50_ns)}` + (last.budget_ns ? `, budget ${ns(last.budget_ns)}` : "") : last && lacks(D.phases.indexOf(last)) ? "a launch has no kernel" : "not measured"),
    fig("Arena", arena ? bytes(arena).split("\u00a0")[0] : "—", arena ? bytes(arena).split("\u00a0")[1] : "", arena ? `${(arena / Math.max(1, ...D.memory.map((m) => m.lower))).toFixed(2)} × the lower bound` : "")));
  const word = { stop: "Stop", look: "Look", note: "Note" };
  body.append(h("div", { class: "two" },
    h("div", {}, h("h2", { class: "cap" }, "Read these first"), D.read_first.length ? h("ul", { class: "reads" }, D.read_first.map((r) => h("li", { "data-level": r.level }, h("a", { href: r.link }, h("b", {}, word[r.level]), h("span", {}, r.text), h("i", { "aria-hidden": "true" }, "›"))))) : h("p", { class: "muted" }, "Nothing stands out.")),
    h("div", {}, h("h2", { class: "cap" }, "Gates of the policy ", h("span", { class: "mono" }, D.policy.name)),
      h("table", { class: "gates" }, h("thead", { class: "sr" }, h("tr", {}, ["state", "rule", "seen"].map((x) => h("th", { scope: "col" }, x)))), h("tbody", {}, D.gates.map(([rule, st, seen, bound]) => h("tr", { "data-gate": st }, h("td", {}, st === "pass" ? glyph("passed") : st === "warn" ? glyph("crashed") : glyph("rejected"), h("span", { class: "sr" }, st)), h("td", {}, rule, h("div", { class: "bound" }, bound)), h("td", { class: "n seen" }, seen))))))));
  body.append(facts());
}
function facts() {
  const W = D.witnesses, spoke = Object.values(W).reduce((a, b) => a + b, 0);
  const rows = [
    ["Image", D.image.id ? [D.image.name, " ", digest(D.image.id), h("span", { class: "muted" }, ` epoch ${D.image.epoch}, ${bytes(D.image.bytes)}`)] : h("span", { class: "muted" }, "none was made")],
    ["Signed by", D.signers.length ? [D.signers.map((k) => h("div", {}, k.name, " ", digest(k.keyid, 12), h("span", { class: "muted" }, ` ${k.role}, ${when(k.at)}`))), D.need.missing.map((m) => h("div", { class: "muted" }, "still needed: " + m))] : h("span", { class: "muted" }, "nobody")],
    ["Model", [cut(foreign(D.model.file), D.model.file), digest(D.model.digest), h("span", { class: "muted" }, ` ${D.model.producer}, ${D.model.parameters >= 1e6 ? (D.model.parameters / 1e6).toFixed(1) + " M" : group(D.model.parameters)} parameters`)]],
    spoke ? ["Witnesses", [h("a", { href: "#evidence" }, `${group(W.agrees)} of ${group(spoke)} ${spoke === 1 ? "agrees" : "agree"} with the float64 program`), h("span", { class: "muted" }, W.disagrees ? `, ${group(W.disagrees)} ${W.disagrees === 1 ? "disagrees" : "disagree"}` : "", W["not compared"] ? `, ${group(W["not compared"])} not compared` : "")]] : null,
    ["Policy", [D.policy.name, " ", D.policy.digest ? digest(D.policy.digest, 12) : null, h("div", { class: "muted" }, D.policy.compute)]],
    ["Machine", D.machine.filter(([k]) => ["host", "cpu", "memory", "kernel"].includes(k)).map(([, v]) => v).join(" · ")],
    ["Certified", [when(D.session.started), h("span", { class: "muted" }, `, took ${span(D.session.seconds)}, effort ${D.session.effort}, seed ${D.session.seed}`)]],
    ["Toolchain", [D.made.tool, " · ", (D.machine.find(([k]) => k === "toolchain") || ["", ""])[1]]],
    ["Dims", D.model.dims.length ? D.model.dims.map(([n, a, b, c]) => a === c ? `${n} = ${a}` : `${n} = ${a} : ${b} : ${c}`).join(" · ") : "all numbers"],
    ["Command", h("span", { class: "mono" }, words(D.session.command))],
  ];
  return h("dl", { class: "facts" }, rows.filter(Boolean).map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v))));
}

// ---------------------------------------------------------------- six checks
function checks() {
  const body = $("checks-body");
  if (!nC) return body.append(empty("No candidate reached a check."));
  const gone = D.checks.map(() => new Map()), count = D.checks.map(none);
  for (let i = 0; i < nC; i++) {
    const o = C.outcome[i];
    if (o === 0) continue;
    const at = o === 4 ? 3 : C.check[i] >= 0 ? C.check[i] : Math.max(0, D.checks.findIndex((_, k) => !ofCand[i].some((r) => R.check[r] === k)));
    count[at][o]++;
    const key = o === 4 ? "staged, wait for a device" : o === 1 || (o === 6 && C.reason[i] >= 0) ? reasonOf(C.reason[i]).cls : D.outcomes[o];
    const m = gone[at];
    if (!m.has(key)) m.set(key, [0, o]);
    m.get(key)[0]++;
  }
  const others = D.outcomes.map((_, o) => o).slice(1);
  let inside = nC;
  const rows = D.checks.map((name, k) => {
    const left = count[k].reduce((a, b) => a + b, 0), entered = inside;
    inside -= left;
    const pct = (x) => (x / nC * 100) + "%";
    return h("div", { role: "row" },
      h("b", { role: "rowheader" }, name),
      h("span", { class: "bar", role: "cell", "aria-label": `${entered} entered, ${inside} passed` }, inside ? h("i", { css: { width: pct(inside) } }) : null, others.map((o) => count[k][o] ? h("i", { "data-state": D.outcomes[o], css: { width: pct(count[k][o]) } }) : null)),
      h("span", { class: "num", role: "cell" }, group(entered), h("span", { class: "muted" }, " → "), h("b", {}, group(inside)), left ? h("span", { class: "muted long" }, `  (−${group(left)})`) : ""),
      h("span", { class: "why", role: "cell" }, [...gone[k]].sort((a, b) => b[1][0] - a[1][0]).map(([key, [n, o]]) => h(o === 6 ? "span" : "a", { "data-state": D.outcomes[o], href: o === 6 ? null : "#receipts?" + (o === 4 ? "verdict=staged" : `check=${name}&verdict=${encodeURIComponent(D.outcomes[o])}` + (o === 1 ? "&q=" + encodeURIComponent(key) : "")) }, h("b", {}, n), " " + key))));
  });
  body.append(h("div", { class: "funnel", role: "table", "aria-label": "Candidates by check" }, h("div", { class: "head", role: "row" }, ["Check", "Candidates", "Entered → passed", "Why they left"].map((t) => h("span", { role: "columnheader" }, t))), rows));
  const seen = others.filter((o) => count.some((c) => c[o]));
  body.append(h("p", { class: "legend", css: { "margin-top": "10px" } }, h("span", {}, h("i", { css: { background: "var(--tint-1b)" } }), "passed on"), seen.map((o) => h("span", { "data-state": D.outcomes[o] }, h("i", { css: { background: "var(--c)" } }), D.outcomes[o]))));
}

// ---------------------------------------------------------------- coverage
function coverage() {
  const body = $("coverage-body");
  if (!nC) return body.append(empty("No kernel was chosen."));
  body.append(h("p", { class: "legend" }, D.backends.map((b, i) => G.chosen.some((c) => c >= 0 && C.backend[c] === i) ? h("span", {}, h("i", { css: { background: b === "onednn" ? "var(--tint-2)" : "var(--tint-1)" } }), b) : null), chosenSet.size ? h("span", { class: "muted" }, "width = share of the kernels' time") : null));
  D.phases.forEach((p, pi) => {
    const rows = [];
    for (const [g, uses] of launches[pi]) rows.push([g, G.chosen[g], G.chosen[g] < 0 ? 0 : uses * C.time_ns[G.chosen[g]], uses]);
    rows.sort((a, b) => (a[1] < 0 ? -1 : 0) - (b[1] < 0 ? -1 : 0) || b[2] - a[2]);
    const total = rows.reduce((a, r) => a + r[2], 0) || 1;
    const tr = ([g, c, t, uses]) => h("tr", {},
      h("td", {}, h("a", { href: sigHref(g) }, G.id[g]), h("span", { class: "hide-p" }, cut(foreign(G.name[g], 80), G.name[g]))),
      h("td", { class: "soft hide-s" }, G.op[g], h("div", { class: "muted hide-p" }, cut(G.shape[g], G.shape[g]))),
      h("td", {}, c < 0 ? (D.verdict.state === "rejected" ? stateOf("rejected", "none admitted") : stateOf("not reached", "none yet")) : h("a", { href: candHref(c) }, C.name[c]), h("div", { class: "muted hide-p" }, c < 0 ? "" : cut(G.why[g] === "fastest of the admitted" ? "fastest" : G.why[g], G.why[g]))),
      h("td", { class: "n hide-s" }, uses + " ×"),
      h("td", { class: "n hide-s" }, c < 0 || !C.time_ns[c] ? "—" : us(C.time_ns[c])),
      h("td", { class: "n hide-s" }, c < 0 ? "—" : p3(C.error[c]), c < 0 ? null : gauge(C.error[c])),
      h("td", {}, c < 0 || !t ? "" : h("div", { class: "share num" }, h("span", {}, (t / total * 100).toFixed(1) + "\u00a0%"), h("i", { css: { width: Math.max(1, t / rows[0][2] * 100) + "%" } }))));
    const top = rows.slice(0, 6), rest = rows.slice(6);
    const tb = h("tbody", {}, top.map(tr));
    body.append(h("section", { class: "phase", "aria-label": p.name },
      h("header", {}, h("h3", {}, p.name), h("span", { class: "muted" }, p.dims), h("span", { class: "num" }, p.p50_ns ? [h("b", {}, ns(p.p50_ns)), p.budget_ns ? ` of ${ns(p.budget_ns)} budget` : ""] : lacks(pi) ? h("span", { "data-state": "rejected", css: { color: "var(--c)" } }, "incomplete: a launch has no kernel") : h("span", { class: "muted" }, "not measured as a whole"))),
      rows.some((r) => r[2]) ? h("div", { class: "phase-bar", "aria-hidden": "true" }, rows.filter((r) => r[2] / total > 0.003).map(([g, c, t]) => h("a", { href: sigHref(g), tabindex: -1, "data-backend": D.backends[C.backend[c]], title: `${G.id[g]}: ${(t / total * 100).toFixed(1)}\u00a0%`, css: { "flex-grow": t, "flex-basis": 0 } }, t / total > 0.085 ? h("span", {}, G.op[g]) : ""))) : null,
      h("div", { class: "scroller" }, h("table", { class: "cover" }, h("colgroup", {}, ["c1", "c2 hide-s", "c3", "c4 hide-s", "c5 hide-s", "c6 hide-s", "c7"].map((k) => h("col", { class: k }))),
        h("thead", {}, h("tr", {}, [["Signature"], ["Operation", "hide-s"], ["Chosen kernel"], ["Uses", "n hide-s"], ["p50, µs", "n hide-s"], ["Error / budget", "n hide-s"], ["Time"]].map(([t, c]) => h("th", { class: c, scope: "col" }, t)))), tb)),
      rest.length ? h("button", { class: "quiet more", type: "button", "aria-expanded": "false", on: { click: (e) => { const b = e.currentTarget, open = b.getAttribute("aria-expanded") === "true"; if (open) while (tb.rows.length > 6) tb.lastChild.remove(); else tb.append(...rest.map(tr)); b.setAttribute("aria-expanded", String(!open)); b.textContent = open ? `Show ${rest.length} more` : "Show fewer"; } } }, `Show ${rest.length} more`) : null));
  });
}
const gauge = (x) => h("span", { class: "gauge", "data-high": x > 0.6 && x <= 1, "data-over": x > 1, "aria-hidden": "true" }, h("i", { css: { width: Math.min(100, x * 100) + "%" } }));

// ---------------------------------------------------------------- the field of a signature
// Scales are the same for every signature, with the budget always at the same place, so that a shape can be learnt.
const knee = (lo, hi, at) => (v) => { const x = Math.log10(Math.min(Math.max(v, lo), hi)); return x <= 0 ? at * (x - Math.log10(lo)) / -Math.log10(lo) : at + (1 - at) * x / Math.log10(hi); };
const kx = knee(0.1, 10, 0.66), ky = knee(0.005, 1e4, 0.64);
let current = 0, showAll = false, redraw = () => {};
function signatures() {
  const body = $("signatures-body");
  if (!nC) return body.append(empty("No candidates were proposed."));
  const list = h("ul", {}), pick = h("select", { class: "sig-pick", "aria-label": "Signature", on: { change: (e) => { location.hash = sigHref(+e.target.value); } } });
  for (let g = 0; g < nG; g++) pick.append(h("option", { value: g }, `${G.id[g]} · ${D.phases[G.phase[g]].name}`));
  const items = G.id.map((id, g) => {
    const n = none();
    for (const c of ofSig[g]) n[C.outcome[c]]++;
    return h("li", {}, h("a", { href: sigHref(g) }, h("span", { class: "cut" }, id), h("small", { class: "num" }, !G.used[g] ? "not used" : staged(g) ? "staged" : `${n[0]} of ${ofSig[g].length}`), cut([D.phases[G.phase[g]].name + " · ", foreign(G.name[g], 60)], G.name[g]),
      h("span", { class: "stack", "aria-hidden": "true" }, n.map((k, o) => k ? h("i", { "data-state": D.outcomes[o], css: { "flex-grow": k } }) : null))));
  });
  list.append(...items);
  const filter = h("input", { type: "search", placeholder: "Filter by op, phase, name", "aria-label": "Filter signatures", on: { input: () => { const q = filter.value.toLowerCase(); items.forEach((li, g) => { li.hidden = !(G.id[g] + " " + G.op[g] + " " + D.phases[G.phase[g]].name + " " + G.name[g] + " " + G.policy[g]).toLowerCase().includes(q); }); } } });
  const right = h("div", {});
  body.append(h("div", { class: "sigs" }, h("div", { class: "sig-list" }, filter, list), h("div", { css: { "min-width": 0 } }, pick, right)));
  redraw = () => {
    items.forEach((li, g) => g === current ? li.firstChild.setAttribute("aria-current", "true") : li.firstChild.removeAttribute("aria-current"));
    pick.value = current;
    const it = items[current], box = list;
    if (it.offsetTop < box.scrollTop || it.offsetTop > box.scrollTop + box.clientHeight - 50) box.scrollTop = it.offsetTop - 120;
    right.replaceChildren(...field(current, right.clientWidth || 800));
  };
  current = G.chosen.reduce((a, c, g) => G.region[g] === 0 && ofSig[g].length > ofSig[a].length ? g : a, 0);
  redraw();
  let w = right.clientWidth;
  new ResizeObserver(() => { if (Math.abs(right.clientWidth - w) > 8) { w = right.clientWidth; redraw(); } }).observe(right);
}
function field(g, width) {
  const all = ofSig[g], small = width < 560, W = width - (small ? 20 : 34), H = small ? 300 : 380, L = 46, T = 8, B = 40;
  const gut = small ? 20 : 46, GW = gut * 3 + 18, PW = W - L - GW - 8, PH = H - T - B;
  const X = (v) => L + kx(v) * PW, Y = (v) => T + PH - ky(v) * PH, gx = (k) => L + PW + 18 + gut * (k + .5);
  const order = [...all].sort((a, b) => (C.time_ns[a] ? 0 : 1) - (C.time_ns[b] ? 0 : 1) || share(a) - share(b) || C.error[a] - C.error[b]);
  const pos = new Map();
  const fresh = [0, 0, 0];
  for (const c of order) {
    if (C.time_ns[c]) pos.set(c, [X(share(c)), Y(C.error[c])]);
    else if (outcome(c) === "staged") pos.set(c, [gx(1) + ((c * 37) % 15 - 7) * gut / 16, Y(C.error[c])]);
    else { const k = Math.max(0, Math.min(2, C.check[c])); pos.set(c, [gx(k) + ((fresh[k]++ * 7) % 5 - 2) * gut / 8, C.outcome[c] === 1 || C.check[c] ? Y(C.error[c]) : T + 10]); }
  }
  const mark = (c) => {
    const [x, y] = pos.get(c), o = outcome(c), st = { "data-state": o, class: "pt " + o.replace(" ", "-"), id: "pt" + c, role: "option", "aria-label": describe(c) };
    if (o === "admitted") return s("circle", { ...st, cx: x, cy: y, r: 4.5 });
    const letter = C.time_ns[c] && o === "rejected" && share(c) <= 1 ? D.checks[C.check[c]][0].toUpperCase() : null;
    if (letter) return s("text", { ...st, x, y: y + 3.5 }, letter);
    return s("svg", { ...st, x: x - 5, y: y - 5, width: 10, height: 10, viewBox: "0 0 16 16" }, s("use", { href: "#g-" + o.replace(" ", "-") }));
  };
  const adm = order.filter((c) => outcome(c) === "admitted");
  let best = Infinity, path = "";
  for (const c of adm) if (C.error[c] < best) { const [x, y] = pos.get(c); path += path ? `H${x.toFixed(1)}V${y.toFixed(1)}` : `M${x.toFixed(1)} ${y.toFixed(1)}`; best = C.error[c]; }
  const chosen = G.chosen[g];
  const hot = s("circle", { class: "hot", r: 8, visibility: "hidden" });
  const xt = small ? [0.1, 0.3, 1, 10] : [0.1, 0.2, 0.5, 1, 2, 5, 10], yt = [0.01, 0.1, 1, 100, 10000];
  const floor = G.floor_ns[g] / (G.budget_ns[g] || 1);
  const svg = s("svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, role: "listbox", tabindex: 0, "aria-label": `Candidates of ${G.id[g]} by time and error; arrow keys move, Enter opens`, css: { "touch-action": "pan-y" } },
    s("rect", { class: "inside", x: L, y: Y(1), width: X(1) - L, height: T + PH - Y(1) }),
    yt.map((v) => [s("line", { class: v === 1 ? "budget" : "grid", x1: L, x2: W - 4, y1: Y(v), y2: Y(v) }), s("text", { class: v === 1 ? "strong" : "", x: L - 8, y: Y(v) + 4, "text-anchor": "end" }, v === 1 ? "1" : v >= 1000 ? "10⁴" : String(v))]),
    xt.map((v) => [s("line", { class: v === 1 ? "budget" : "grid", x1: X(v), x2: X(v), y1: T, y2: T + PH }), s("text", { class: v === 1 ? "strong" : "", x: X(v), y: T + PH + 16, "text-anchor": "middle" }, String(v))]),
    floor > 0.1 && floor < 1e9 && !staged(g) ? [s("line", { class: "floor", x1: X(floor), x2: X(floor), y1: T, y2: T + PH }), s("text", { x: X(floor) + 4, y: T + PH - 6 }, "floor")] : null,
    s("line", { class: "grid", x1: L + PW + 9, x2: L + PW + 9, y1: T, y2: T + PH + 18 }),
    staged(g) ? s("text", { x: gx(1), y: T + PH + 16, "text-anchor": "middle" }, "staged") : [0, 1, 2].map((k) => s("text", { x: gx(k), y: T + PH + 16, "text-anchor": "middle" }, small ? D.checks[k][0].toUpperCase() : D.checks[k])),
    s("text", { x: X(0.1), y: H - 4 }, "time / budget →"), s("text", { x: W - 4, y: H - 4, "text-anchor": "end" }, "never timed"),
    s("text", { x: 0, y: 0, transform: `translate(10 ${T + PH}) rotate(-90)` }, "error / budget →"),
    path ? s("path", { class: "pareto", d: path }) : null,
    order.filter((c) => outcome(c) !== "admitted").map(mark), adm.map(mark),
    chosen >= 0 ? s("circle", { class: "ring", cx: pos.get(chosen)[0], cy: pos.get(chosen)[1], r: 7.5 }) : null, hot);
  const caption = h("p", { class: "caption" });
  const rest = () => { hot.setAttribute("visibility", "hidden"); svg.removeAttribute("aria-activedescendant"); caption.replaceChildren(chosen >= 0 ? h("b", {}, "Chosen: " + C.name[chosen]) : h("b", {}, "Nothing chosen"), chosen < 0 ? `: ${G.why[g]}.` : C.time_ns[chosen] ? `  ${p3(share(chosen))} of the time budget (${ns(C.time_ns[chosen])}), ${p3(C.error[chosen])} of the error budget; ${G.why[g]}.` : `  never timed, ${p3(C.error[chosen])} of the error budget; ${G.why[g]}.`); };
  let at = -1;
  const show = (c) => { at = order.indexOf(c); const [x, y] = pos.get(c); fill(hot, { cx: x, cy: y, visibility: "visible" }, []); svg.setAttribute("aria-activedescendant", "pt" + c); const o = outcome(c), r = reasonOf(C.reason[c]); caption.replaceChildren(h("b", {}, C.name[c]), " ", stateOf(o, o === "rejected" ? `rejected by ${D.checks[C.check[c]]}` : o), `  ${C.time_ns[c] ? `${p3(share(c))} of time (${ns(C.time_ns[c])}), ` : ""}${p3(C.error[c])} of error. `, r ? r.text + "." : D.strings[C.config[c]]); };
  const nearest = (e) => { const b = svg.getBoundingClientRect(), mx = e.clientX - b.left, my = e.clientY - b.top; let hit = null, d = 26 * 26; for (const [c, [x, y]] of pos) { const q = (x - mx) ** 2 + (y - my) ** 2; if (q < d) { d = q; hit = c; } } return hit; };
  svg.addEventListener("pointermove", (e) => { const c = nearest(e); svg.style.cursor = c === null ? "" : "pointer"; c === null ? rest() : show(c); });
  svg.addEventListener("pointerleave", rest);
  svg.addEventListener("click", (e) => { const c = nearest(e); if (c !== null) location.hash = candHref(c); });
  svg.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    if (step) { e.preventDefault(); show(order[Math.min(order.length - 1, Math.max(0, at < 0 ? (chosen >= 0 ? order.indexOf(chosen) : 0) : at + step))]); }
    else if (e.key === "Home" || e.key === "End") { e.preventDefault(); show(order[e.key === "Home" ? 0 : order.length - 1]); }
    else if (e.key === "Enter" && at >= 0) location.hash = candHref(order[at]);
    else if (e.key === "Escape") rest();
  });
  rest();
  const seen = [...new Set(all.map((c) => C.outcome[c]))].sort().map((o) => D.outcomes[o]);
  const rank = (c) => c === chosen ? -1 : C.outcome[c] === 0 ? 0 : C.time_ns[c] ? 1 : 2;
  const rows = [...order].sort((a, b) => rank(a) - rank(b));
  const shown = showAll ? rows : rows.slice(0, 10);
  const SW = small ? 80 : width < 900 ? 160 : 240, sx = (t) => Math.min(1, t / (G.budget_ns[g] || 1) / 1.3) * (SW - 8) + 4;
  const axis = s("svg", { width: SW, height: 18 }, s("text", { x: 4, y: 13 }, "0"), s("text", { x: sx(G.budget_ns[g]), y: 13, "text-anchor": "middle", class: "strong" }, !G.budget_ns[g] ? "" : small ? "budget" : "budget " + ns(G.budget_ns[g])));
  return [
    h("div", { class: "sig-head" }, h("h3", {}, G.id[g]), h("span", { class: "soft" }, G.op[g] + "  " + G.shape[g]), h("span", { class: "muted" }, `${G.dtype[g]}, policy ${G.policy[g]}, ${D.phases[G.phase[g]].name}, ${G.uses[g]} × per replay${G.used[g] ? "" : ", an alternative that the cover does not use"}`)),
    h("div", { class: "muted" }, cut(foreign(G.name[g], 160), G.name[g])),
    G.contest[g] ? h("div", { class: "muted" }, G.contest[g][0].toUpperCase() + G.contest[g].slice(1)) : null,
    h("figure", { class: "card plot" }, caption, svg, h("figcaption", { class: "legend", css: { "margin-top": "6px" } }, seen.map((o) => h("span", { "data-state": o }, o === "admitted" ? s("svg", { class: "glyph", viewBox: "0 0 12 12" }, s("circle", { cx: 6, cy: 6, r: 4.5, stroke: "none" })) : glyph(o), o)), h("span", {}, s("svg", { width: 14, height: 12 }, s("circle", { class: "ring", cx: 7, cy: 6, r: 5 })), "chosen"), h("span", {}, s("svg", { width: 16, height: 12 }, s("path", { class: "pareto", d: "M0 2H8V10H16" })), "none better in both"), h("span", { class: "hide-s" }, h("b", { "data-state": "rejected", css: { color: "var(--c)" } }, "T R C"), "timing, replay or cache-key refused it although inside both"))),
    h("div", { class: "scroller", css: { "margin-top": "16px" } }, h("table", { class: "field" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Candidate"), h("th", { scope: "col" }, "Verdict"), h("th", { class: "n hide-s", scope: "col" }, "p50, µs"), h("th", { class: "n hide-s", scope: "col" }, "p99, µs"), h("th", { class: "strip", scope: "col" }, h("span", { class: "sr" }, "Timing distribution"), axis), h("th", { class: "n", scope: "col" }, "Error"), h("th", { class: "hide-s", scope: "col" }, "Configuration or reason"))),
      h("tbody", {}, shown.map((c) => h("tr", { class: c === chosen ? "chosen" : "" },
        h("td", {}, h("a", { href: candHref(c) }, C.name[c])),
        h("td", {}, c === chosen ? stateOf(outcome(c), "chosen") : outcome(c) === "rejected" ? stateOf("rejected", D.checks[C.check[c]]) : stateOf(outcome(c))),
        h("td", { class: "n hide-s" }, C.time_ns[c] ? us(C.time_ns[c]) : h("span", { class: "muted" }, "—")),
        h("td", { class: "n hide-s" }, C.warm[c].length ? us(C.warm[c][20]) : h("span", { class: "muted" }, "—")),
        h("td", {}, C.warm[c].length ? strip(c, SW, sx) : h("span", { class: "muted" }, "never timed")),
        h("td", { class: "n" }, p3(C.error[c])),
        h("td", { class: "hide-s soft cfg" }, cut(C.reason[c] >= 0 ? reasonOf(C.reason[c]).text : D.strings[C.config[c]], C.reason[c] >= 0 ? reasonOf(C.reason[c]).text : D.strings[C.config[c]]))))))),
    rows.length > 10 ? h("button", { class: "quiet more", type: "button", on: { click: () => { showAll = !showAll; redraw(); } } }, showAll ? "Show fewer" : `Show all ${rows.length}`) : null,
  ].filter(Boolean);
}
const describe = (c) => `${C.name[c]}, ${outcome(c)}${C.check[c] >= 0 ? " by " + D.checks[C.check[c]] : ""}, ${C.time_ns[c] ? p3(share(c)) + " of time budget, " : "never timed, "}${p3(C.error[c])} of error budget`;
// Twenty-one quantiles as dots: every dot is a twentieth of the calls. Filled is warm, hollow is cold; ticks are p50 and p99.
function strip(c, w, sx, tall, line = true) {
  const H = tall ? 84 : 26, yw = tall ? 24 : 9, yc = tall ? 60 : 18, over = (t) => t > G.budget_ns[C.sig[c]] * 1.29;
  const row = (q, y, cls) => q.map((t, i) => i === 20 ? null : s("circle", { cx: sx(t), cy: y, r: tall ? 3.5 : 2.25, fill: cls ? "none" : "var(--accent)", "fill-opacity": cls ? null : .45, stroke: cls ? "var(--ink-3)" : "none", "stroke-opacity": .75 }));
  const tick = (t, y, k) => s("line", { x1: sx(t), x2: sx(t), y1: y - k, y2: y + k, stroke: "var(--ink)", "stroke-width": 1.5 });
  const both = [[C.warm[c], yw, 0, "warm"], [C.cold[c], yc, 1, "cold"]].filter(([q]) => q.length);
  return s("svg", { width: w, height: H, role: "img", "aria-label": both.map(([q, , , name]) => `${name} p50 ${ns(q[10])}, p99 ${ns(q[20])}`).join("; ") },
    line && s("line", { class: "budget", x1: sx(G.budget_ns[C.sig[c]]), x2: sx(G.budget_ns[C.sig[c]]), y1: tall ? 4 : -4, y2: tall ? H - 4 : H + 4 }),
    both.map(([q, y, cls]) => [row(q, y, cls), tick(q[10], y, tall ? 9 : 5), tick(q[20], y, tall ? 6 : 3)]),
    over(C.warm[c][10]) ? s("text", { x: w - 2, y: yw + 4, "text-anchor": "end" }, "›") : null);
}

// ---------------------------------------------------------------- memory
// From 0 to n in equal round steps; n always, and no other so near to it that they would touch.
function wholeTicks(n) {
  let step = 1;
  for (let i = 0; n / step > 6; i++) step *= i % 3 === 1 ? 2.5 : 2; // 1, 2, 5, 10, ...
  return [...Array.from({ length: Math.ceil(n / step) }, (_, i) => i * step).filter((t) => n - t >= step * .6), n];
}
function memory() {
  const body = $("memory-body");
  if (!D.memory.length) return body.append(empty("No plan was made."));
  const draw = h("div", { class: "card plot" });
  let sel = Math.max(0, D.memory.findIndex((m) => m.phase === "prefill"));
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Phase" }, D.memory.map((m, i) => h("button", { type: "button", role: "tab", on: { click: () => { sel = i; paint(); }, keydown: (e) => { const d = { ArrowRight: 1, ArrowLeft: -1 }[e.key]; if (d) { sel = (sel + d + D.memory.length) % D.memory.length; paint(); tabs.children[sel].focus(); } } } }, m.phase)));
  body.append(tabs, draw);
  const paint = () => {
    [...tabs.children].forEach((b, i) => { b.setAttribute("aria-selected", String(i === sel)); b.tabIndex = i === sel ? 0 : -1; });
    if (draw.clientWidth < 60) return; // not shown, as on paper
    const m = D.memory[sel], W = draw.clientWidth - (draw.clientWidth < 560 ? 22 : 34), H = W < 560 ? 240 : 320, L = 64, T = 10, B = 34, PW = W - L - 6, PH = H - T - B;
    const X = (t) => L + t / Math.max(1, m.launches) * PW, Y = (b) => T + PH - b / Math.max(1, m.arena) * PH;
    const order = m.size.map((_, i) => i).sort((a, b) => m.first[a] - m.first[b] || m.offset[a] - m.offset[b]);
    const rect = (i) => s("rect", { class: "buf" + (m.role[i] ? " w" : ""), x: X(m.first[i]), width: Math.max(.75, X(m.last[i] + 1) - X(m.first[i])), y: Y(m.offset[i] + m.size[i]), height: Math.max(.75, Y(m.offset[i]) - Y(m.offset[i] + m.size[i])) });
    const hot = s("rect", { class: "hot", visibility: "hidden" });
    const ticks = [0, .25, .5, .75, 1], lt = wholeTicks(m.launches);
    const unit = m.arena >= 2 ** 20 ? [2 ** 20, "MiB"] : [1024, "KiB"];
    const caption = h("p", { class: "caption", "aria-live": "polite" });
    const rest = () => { hot.setAttribute("visibility", "hidden"); caption.replaceChildren(h("b", {}, bytes(m.arena)), ` arena for ${plural(m.size.length, "buffer")} over ${plural(m.launches, "launch", "launches")}; `, m.arena === m.lower || !m.lower ? "equal to the lower bound" : `${(m.arena / m.lower).toFixed(3)} × the lower bound`, m.state.map(([n, b]) => `. ${n}: ${bytes(b)}, apart from the arena, alive throughout`), "."); };
    const show = (i) => { at = order.indexOf(i); fill(hot, { x: X(m.first[i]), width: Math.max(2, X(m.last[i] + 1) - X(m.first[i])), y: Y(m.offset[i] + m.size[i]), height: Math.max(2, Y(m.offset[i]) - Y(m.offset[i] + m.size[i])), visibility: "visible" }, []); caption.replaceChildren(h("b", {}, foreign(m.label[i], 60)), `  ${bytes(m.size[i])} at offset ${group(m.offset[i])}, launches ${m.first[i]} to ${m.last[i]}, ${m.sig[i] < 0 ? "an input" : G.id[m.sig[i]]}`); };
    let at = -1;
    const follow = () => { if (at >= 0 && m.sig[order[at]] >= 0) location.hash = sigHref(m.sig[order[at]]); };
    const svg = s("svg", { width: W, height: H, tabindex: 0, role: "img", "aria-label": `Memory plan of ${m.phase}: ${m.size.length} buffers, arena ${bytes(m.arena)}. Arrow keys walk the buffers.` },
      ticks.map((f) => [s("line", { class: "grid", x1: L, x2: W - 6, y1: Y(m.arena * f), y2: Y(m.arena * f) }), s("text", { x: L - 8, y: Y(m.arena * f) + 4, "text-anchor": "end" }, f === 0 ? "0" : (m.arena * f / unit[0]).toFixed(m.arena / unit[0] < 10 ? 2 : 1) + (f === 1 ? " " + unit[1] : ""))]),
      lt.map((t) => s("text", { x: X(t), y: T + PH + 16, "text-anchor": t === 0 ? "start" : t === m.launches ? "end" : "middle" }, t)), s("text", { x: L, y: H - 2 }, "launch →"),
      order.map(rect), m.lower < m.arena ? s("line", { class: "lower", x1: L, x2: W - 6, y1: Y(m.lower), y2: Y(m.lower) }) : null, hot);
    svg.addEventListener("pointermove", (e) => { const b = svg.getBoundingClientRect(), t = (e.clientX - b.left - L) / PW * m.launches, o = (T + PH - (e.clientY - b.top)) / PH * m.arena; const hit = order.find((i) => m.first[i] <= t && t < m.last[i] + 1 && m.offset[i] <= o && o < m.offset[i] + m.size[i]); hit === undefined ? rest() : show(hit); });
    svg.addEventListener("pointerleave", rest);
    svg.addEventListener("keydown", (e) => { const d = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[e.key]; if (d) { e.preventDefault(); show(order[Math.min(order.length - 1, Math.max(0, at + d))]); } else if (e.key === "Escape") rest(); else if (e.key === "Enter") follow(); });
    svg.addEventListener("click", follow);
    rest();
    draw.replaceChildren(caption, svg, h("p", { class: "legend", css: { "margin-top": "6px" } }, h("span", {}, h("i", { css: { background: "var(--tint-1b)" } }), "value"), h("span", {}, s("svg", { width: 12, height: 12 }, s("rect", { width: 12, height: 12, class: "buf w" })), "workspace")));
  };
  paint();
  let w = draw.clientWidth;
  new ResizeObserver(() => { if (Math.abs(draw.clientWidth - w) > 8) { w = draw.clientWidth; paint(); } }).observe(draw);
}
