// The ranks as they are now, in the report's grid and in a table: /v1/ranks as the columns that Rankscope.ranks draws.
Rankscope.grid = (() => {
  const { html } = Rankscope.dom;
  const MOST_ROWS = 64;
  const FEW = 16;  // ranks up to which the table is open from the start
  const STATES = { running: "▶", suspected: "?", hung: "■", waiting: "○", slow: "▽", exited: "✕", unobserved: "–" };

  // Roles and places are those of the incident that holds: /v1/ranks has none.
  function columns(answer, report) {
    const found = new Map(report ? report.ranks.rank.map((rank, index) => [rank, index]) : []);
    const words = () => {
      const index = new Map();
      return { of: (text) => index.get(text) ?? (index.set(text, index.size), index.size - 1), list: () => [...index.keys()] };
    };
    const nodes = words(), states = words(), roles = words(), positions = words();
    const said = { rank: [], node: [], pid: [], state: [], role: [], step: [], idle: [], position: [], reason: [] };
    for (const one of answer.ranks) {
      const at = found.get(one.rank);
      const known = at === undefined ? null : report.ranks;
      said.rank.push(one.rank);
      said.node.push(nodes.of(one.node || ""));
      said.pid.push(one.pid || 0);
      said.state.push(states.of(one.state));
      said.role.push(roles.of(known ? known.roles[known.role[at]] : ""));
      said.step.push(one.step ?? null);
      said.idle.push(one.seconds_since_progress ?? null);
      said.position.push(positions.of(one.where || (known ? known.positions[known.position[at]] : "")));
      said.reason.push(-1);
    }
    return { ranks: { ...said, nodes: nodes.list(), states: states.list(), roles: roles.list(), positions: positions.list(), reasons: [] } };
  }

  const number = (value, digits) => (value === null || value === undefined ? "–" : digits === undefined ? String(value) : value.toFixed(digits));
  const cells_of = (one) => [
    String(one.rank), one.node || "–", `${STATES[one.state] || "·"} ${one.state}`, number(one.step), number(one.seconds_since_progress, 1), number(one.steps_per_second, 2), one.where || "–",
  ];

  // All ranks of a small job; of a large one those that have stood longest.
  function rows_of(answer) {
    if (answer.ranks.length <= MOST_ROWS) return answer.ranks;
    const idle = (one) => one.seconds_since_progress ?? -1;
    return [...answer.ranks].sort((one, other) => idle(other) - idle(one)).slice(0, MOST_ROWS);
  }

  function make_table(element) {
    const title = html("summary", {});
    const body = html("tbody", {});
    const numbers = new Set([3, 4, 5]);
    const heads = ["Rank", "Node", "State", "Step", "Since progress (s)", "Steps/s", "Where"];
    element.replaceChildren(title, html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table of ranks" }, html("table", {},
      html("thead", {}, html("tr", {}, ...heads.map((one, nth) => html("th", { scope: "col", class: numbers.has(nth) ? "number" : null }, one)))), body)));
    let shown = [];
    return function update(answer) {
      const rows = rows_of(answer);
      title.textContent = rows.length === answer.ranks.length ? `Table of ${rows.length === 1 ? "the rank" : `all ${rows.length} ranks`}` : `Table of the ${rows.length} ranks that have stood longest`;
      if (element.hidden && rows.length) element.open = rows.length <= FEW;
      element.hidden = !rows.length;
      const said = rows.map(cells_of);
      if (rows.length !== shown.length) {
        body.replaceChildren(...said.map((cells) => html("tr", {}, ...cells.map((text, nth) => html("td", { class: numbers.has(nth) ? "number" : null }, text)))));
      } else {
        said.forEach((cells, row) => cells.forEach((text, nth) => {
          if (text !== shown[row][nth]) body.rows[row].cells[nth].textContent = text;
        }));
      }
      rows.forEach((one, row) => (body.rows[row].className = one.state === "hung" ? "role-culprit" : ""));
      shown = said;
    };
  }

  function make(element, table, hint) {
    let update = null;
    const tabulate = make_table(table);
    return function draw(answer, report) {
      const columned = columns(answer, report);
      update = update ? update(columned) : Rankscope.ranks.render(element, columned);
      tabulate(answer);
      const missing = answer.world_size - answer.ranks.length;
      hint.textContent = !answer.ranks.length ? "No worker runs now."
        : missing > 0 ? `${answer.ranks.length} of ${answer.world_size} ranks: those that this agent knows of. Enter or a click on a rank shows its stack, if there is one.`
          : "Arrow keys or the pointer walk from rank to rank; Enter or a click shows its stack, if there is one.";
    };
  }

  return { make, columns };
})();
