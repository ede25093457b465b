// The stacks that stand in the page: a filter by rank or by text. `render` makes them where they do not stand there.
Rankscope.stacks = (() => {
  const { html, set, ranks, has } = Rankscope.dom;
  const OPEN = 6;

  function group(page, one, place) {
    const frames = one.frames.map((frame) => page.frames[frame]);
    const more = one.count > one.threads.length ? ` … ${one.count - one.threads.length} more` : "";
    return html("details", { class: one.is_culprit ? "stack culprit" : "stack", open: one.is_culprit || place < OPEN },
      html("summary", {},
        html("span", { class: "count" }, `${one.count}×`),
        html("span", { class: "who" }, ranks(set(page, one.ranks)), one.is_culprit ? html("span", { class: "badge" }, " ◆ culprit") : null),
        html("code", { class: "leaf" }, frames[0] ?? "(no frames)")),
      html("ol", { class: "frames" }, ...frames.map((frame) => html("li", {}, html("code", {}, frame)))),
      one.frames_left_out ? html("p", { class: "hint" }, `${one.frames_left_out} further frames, towards the root, are not on this page`) : null,
      html("p", { class: "threads" }, `threads ${one.threads.join(" ")}${more}`));
  }

  function render(element, page) {
    element.replaceChildren(...page.stacks.groups.map((one, place) => group(page, one, place)));
  }

  function left_out(part) {
    if (!part.left_out) return null;
    return html("p", { class: "hint" }, `${part.left_out} further stacks (${part.threads_left_out} threads) are not on this page: `,
      html("code", {}, "diag analyze --full"), " has them.");
  }

  // What stands below the stacks: how many are left out, and the threads that decide nothing.
  function rest(element, page) {
    const number = page.others.groups.length + page.others.left_out;
    const others = page.others.groups.length
      ? html("details", { class: "more" },
        html("summary", {}, `Other threads, which decide nothing (loaders, autograd, watchdogs): ${number} stack${number === 1 ? "" : "s"}`),
        ...page.others.groups.map((one) => group(page, one, Infinity)), left_out(page.others) || "")
      : null;
    element.replaceChildren(...[left_out(page.stacks), others].filter(Boolean));
  }

  // Hides what is not asked for; `element` gets the two fields, `stacks` has the groups in the document's order.
  function filter(element, page, stacks) {
    const rank = html("input", { type: "number", min: 0, inputmode: "numeric" });
    const text = html("input", { type: "search" });
    const found = html("span", { class: "hint", role: "status" });
    element.replaceChildren(html("label", {}, "Rank ", rank), html("label", {}, "Frame with ", text), found);

    function apply() {
      const words = text.value.toLowerCase();
      let shown = 0;
      page.stacks.groups.forEach((one, index) => {
        const fits = (rank.value === "" || has(set(page, one.ranks), Number(rank.value)))
          && (words === "" || one.frames.some((frame) => page.frames[frame].toLowerCase().includes(words)));
        stacks.children[index].hidden = !fits;
        shown += fits;
      });
      found.textContent = rank.value === "" && words === "" ? "" : `${shown} of ${page.stacks.groups.length} stacks`;
    }
    rank.addEventListener("input", apply);
    text.addEventListener("input", apply);
  }

  return { render, rest, filter };
})();
