// Draws the parts of the report that need a script, beside what stands in the page without one.
Rankscope.report = (() => {
  function parts(page) {
    for (const name of ["waits", "icicle", "ranks", "timeline"]) {
      const element = document.querySelector(`[data-part="${name}"]`);
      if (!element) continue;
      element.hidden = false;
      Rankscope[name].render(element, page);
    }
    const filter = document.querySelector('[data-part="filter"]');
    if (filter && page.stacks.groups.length > 1) {
      filter.hidden = false;
      Rankscope.stacks.filter(filter, page, document.querySelector('[data-part="stacks"]'));
    }
  }

  // On paper nothing can be opened: what is closed is opened for printing, and closed again.
  function print() {
    let opened = [];
    window.addEventListener("beforeprint", () => {
      opened = [...document.querySelectorAll("details:not([open])")].slice(0, 60);
      opened.forEach((one) => (one.open = true));
    });
    window.addEventListener("afterprint", () => opened.forEach((one) => (one.open = false)));
  }

  function start() {
    const page = JSON.parse(document.getElementById("report-data").textContent);
    parts(page);
    print();
  }

  return { start };
})();
Rankscope.report.start();
