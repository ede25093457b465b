// "Analyse now": asks the agent for a fresh pair of snapshots of all ranks and what they show. One at a time.
Rankscope.analyse = (() => {
  const LONGEST = 120;  // s; the agent has deadlines of its own, which are shorter

  function attach(button, said, { found, problem }) {
    let began = 0;
    let ticking = 0;

    const tick = () => (button.textContent = `Looking at all ranks … ${Math.round((Date.now() - began) / 1000)} s`);

    function begin() {
      began = Date.now();
      button.setAttribute("aria-disabled", "true");  // it keeps the focus
      button.setAttribute("aria-busy", "true");
      said.className = "hint";
      said.textContent = "Two looks, some seconds apart.";
      tick();
      ticking = setInterval(tick, 1000);
    }

    function end(text, is_trouble) {
      clearInterval(ticking);
      began = 0;
      button.removeAttribute("aria-disabled");
      button.removeAttribute("aria-busy");
      button.textContent = "Analyse now";
      said.className = is_trouble ? "hint bad" : "hint";
      said.textContent = text;
    }

    async function ask() {
      const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}", cache: "no-store", signal: AbortSignal.timeout(1000 * LONGEST) };
      const answer = await fetch("v1/analyze?as=page", options);
      if (answer.ok) {
        const page = await answer.json();
        end(`Looked at ${page.head.time.slice(11, 19)} UTC: ${page.head.verdict}.`, false);
        return found(page);
      }
      const later = answer.headers.get("Retry-After");
      if (answer.status === 409) return end(`Busy: ${await problem(answer)}${later ? `; ask again in ${later} s` : ""}.`, true);
      if (answer.status === 401 || answer.status === 403) return end("Not allowed: open the page again with the job's token.", true);
      return end(`Failed: ${await problem(answer)}.`, true);
    }

    button.addEventListener("click", async () => {
      if (began) return;
      begin();
      try {
        await ask();
      } catch (error) {
        end(error.name === "TimeoutError" ? `Failed: no answer within ${LONGEST} s.` : "Failed: the agent's server cannot be reached.", true);
      }
    });
  }

  return { attach };
})();
