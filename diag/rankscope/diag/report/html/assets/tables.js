// What the report's templates show without scripts, made by a script for a page that has only the document: the table of
// the wait-for graph, the table of ranks, the list of moments, the table of cycles, the evidence, what was not seen.
Rankscope.tables = (() => {
  const { html, set, ranks } = Rankscope.dom;
  const MARKS = { culprit: "◆", victim: "○", bystander: "·" };
  const STATES = { running: "▶", suspected: "?", hung: "■", waiting: "○", slow: "▽", exited: "✕", unobserved: "–" };
  const MOMENTS = { incident: "◆", decision: "▣", restart: "↻", slow: "▽", end: "■", other: "·" };

  // A number as the templates write it: seconds keep their decimal point.
  const decimal = (value) => (Number.isInteger(value) ? value.toFixed(1) : String(value));
  const between = (pair, write) => (pair === null ? "–" : write(pair[0]) + (pair[1] === pair[0] ? "" : `–${write(pair[1])}`));
  const mark = (role) => html("span", { class: `mark role-${role}`, "aria-hidden": "true" }, MARKS[role]);
  const state_mark = (state) => html("span", { class: `mark state-${state}`, "aria-hidden": "true" }, STATES[state]);
  const code = (text) => (text ? html("code", {}, text) : null);
  const cell = (...said) => html("td", {}, ...said);
  const number = (text) => html("td", { class: "number" }, text);

  // Headings: a text, or a text in a list for a column of numbers.
  function table(headings, rows) {
    const heads = headings.map((one) => html("th", { scope: "col", class: Array.isArray(one) ? "number" : null }, Array.isArray(one) ? one[0] : one));
    return html("table", {}, html("thead", {}, html("tr", {}, ...heads)), html("tbody", {}, ...rows));
  }

  function waits(element, page) {
    const rows = page.waits.map((one) => html("tr", { class: `role-${one.role}` },
      cell(ranks(set(page, one.ranks))), cell(mark(one.role), ` ${one.role}`), cell(code(one.position)),
      cell(one.targets >= 0 ? ranks(set(page, one.targets)) : "nobody")));
    element.replaceChildren(...(rows.length ? [table(["Ranks", "Role", "Where", "Wait for"], rows)] : []));
  }

  function rows(element, page) {
    const made = page.rows.map((row) => html("tr", { class: `role-${row.role}` },
      cell(ranks(set(page, row.ranks))),
      cell((row.nodes.join(", ") || "–") + (row.node_count > row.nodes.length ? ` and ${row.node_count - row.nodes.length} more` : "")),
      cell(state_mark(row.state), ` ${row.state}`),
      cell(mark(row.role), ` ${row.role}${row.rank_class ? `, ${row.rank_class}` : ""}`),
      number(between(row.steps, String)), number(between(row.idle, decimal)),
      cell(code(row.position), row.reason ? html("span", { class: "reason" }, ` ${row.reason}`) : null)));
    const headings = ["Ranks", "Node", "State", "Role", ["Step"], ["Since it (s)"], "Where"];
    element.replaceChildren(...(made.length ? [table(headings, made)] : []));
  }

  function moment(one) {
    const at = `${one.time.slice(0, 10)} ${one.time.slice(11, 19)}`;
    const said = `${one.is_this ? " (this incident)" : ""}${one.node ? ` on ${one.node}` : ""}: ${one.text}${one.count > 1 ? ` (${one.count} times)` : ""}`;
    return html("li", { class: `moment-${one.kind}${one.is_this ? " this" : ""}` },
      html("time", { datetime: one.time }, at), html("span", { class: "mark", "aria-hidden": "true" }, MOMENTS[one.kind]),
      html("span", {}, html("b", {}, one.type), said));
  }

  function moments(element, page) {
    const time = page.timeline;
    const more = time.moments_left_out
      ? html("li", { class: "hint" }, `${time.moments_left_out} earlier moments: `, code("diag history"), " has them") : null;
    element.replaceChildren(...[more, ...time.moments.map(moment)].filter(Boolean));
  }

  function cycles(element, page) {
    const time = page.timeline;
    const made = time.cycles.map((one) => html("tr", {}, number(one.number), cell(one.node),
      ...one.stages.map((length) => number(length ? decimal(length) : "–")), number(decimal(one.duration)), number(one.steps),
      cell(`${one.result}${one.reason ? `: ${one.reason}` : ""}`)));
    const headings = ["#", "Node", ...time.stages.map((stage) => [stage.replaceAll("_", " ")]), ["total"], ["Steps"], "Result"];
    element.replaceChildren(...(made.length ? [table(headings, made)] : []));
  }

  function evidence(element, page) {
    const { rule, confidence, would_change } = page.head;
    const facts = page.evidence.map((one) => html("li", {},
      one.rank === null ? null : html("span", { class: "who" }, `rank ${one.rank}`), one.rank === null ? null : " ",
      html("span", { class: "by" }, one.source), ` ${one.fact}`));
    element.replaceChildren(...[
      html("p", {}, `By rule ${rule}, confidence ${confidence}.${would_change ? ` What would change it: ${would_change}.` : ""}`),
      facts.length ? html("ul", { class: "facts-list" }, ...facts) : null,
      page.evidence_left_out ? html("p", { class: "hint" }, `${page.evidence_left_out} further facts are not on this page: `, code("diag analyze --json"), " has them.") : null,
    ].filter(Boolean));
  }

  function unseen(element, page) {
    const said = (one, how) => [html("dt", {}, ranks(set(page, one.ranks))), html("dd", {}, `${how}: ${one.reason}`)];
    const all = [...page.unobserved.flatMap((one) => said(one, "not observed")), ...page.limits.flatMap((one) => said(one, "observed, but"))];
    element.replaceChildren(all.length ? html("dl", { class: "reasons" }, ...all) : html("p", {}, "All ranks were observed, and nothing of them was missing."));
  }

  return { waits, rows, moments, cycles, evidence, unseen };
})();
