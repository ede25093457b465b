// The verdict, as the file's own template shows it: what is the matter, who, where, how sure, what was done.
Rankscope.verdict = (() => {
  const { html, ranks, seconds } = Rankscope.dom;
  const SIGNS = { error: "✖", warning: "▲", info: "●", none: "✔" };

  const fact = (name, ...said) => html("div", {}, html("dt", {}, name), html("dd", {}, ...said));

  function where(head) {
    const time = head.time.replace("T", " ").replace("Z", " UTC");
    return html("p", { class: "where" },
      html("span", { class: "job" }, head.job || "a job without a name"),
      html("span", {}, `${head.world_size} rank${head.world_size === 1 ? "" : "s"}`),
      head.incident ? html("span", {}, `incident ${head.incident}`) : null,
      html("span", {}, html("time", { datetime: head.time }, time)));
  }

  function place(at) {
    if (!at) return null;
    return html("div", { class: "place" },
      html("p", {}, html("code", { class: "file" }, at.line ? `${at.file}:${at.line}` : at.file), " in ", html("code", {}, at.function)),
      at.source ? html("pre", { class: "source" }, html("code", {}, at.source)) : null);
  }

  function culprits(head) {
    if (!head.culprits.count) return ["none: no rank stands out"];
    const more = head.node_count - head.nodes.length;
    const nodes = head.nodes.length ? ` on ${head.nodes.join(", ")}${more > 0 ? ` and ${more} more nodes` : ""}` : "";
    return [html("span", { class: "mark role-culprit", "aria-hidden": "true" }, "◆"), ` ${ranks(head.culprits)}${nodes}`];
  }

  function facts(head) {
    const stopped = head.stopped_for === null ? null
      : fact("No step for", `${seconds(head.stopped_for)}${head.incident ? " when looked at" : ""}`);
    return html("dl", { class: "facts" },
      fact(head.culprits.count > 1 ? "Culprits" : "Culprit", ...culprits(head)),
      fact("Confidence", head.confidence), fact("Severity", head.severity), stopped,
      fact("Seen", `${head.observed.count} of ${head.world_size} ranks`));
  }

  function decided(page) {
    if (page.decided) {
      return html("div", { class: "decided" },
        html("p", {}, html("strong", {}, `Decided: ${page.decided.action}`), " ", html("span", { class: "reason" }, page.decided.reason)),
        ...page.decided.then.map((sentence) => html("p", { class: "then" }, sentence)));
    }
    const stored = page.head.incident;
    return html("div", { class: "decided" },
      html("p", {}, html("strong", {}, stored ? "Nothing was decided about it." : "Nothing was decided."),
        stored ? null : " This is a look at the job; nothing was done to it."));
  }

  function render(element, page, heading = "h1") {
    const head = page.head;
    element.className = `verdict severity-${head.severity}`;
    element.replaceChildren(...[where(head),
      html(heading, {}, html("span", { class: "sign", "aria-hidden": "true" }, SIGNS[head.severity]), ` ${head.verdict}`,
        head.kind === "none" ? null : html("span", { class: "kind" }, ` · ${head.kind}`)),
      html("p", { class: "summary" }, head.summary), place(head.location), facts(head), decided(page)].filter(Boolean));
  }

  return { render };
})();
