"use strict";
// The board's curves: one line for each visitor, from the event `curves` of the board's stream.
{
  const box = document.getElementById("curves");
  const place = box.querySelector(".plot");
  const soft = () => getComputedStyle(document.body).getPropertyValue("--soft");
  let plot = null, names = "";
  const draw = (curves) => {
    const owners = Object.keys(curves);
    box.hidden = !owners.some((owner) => curves[owner].length > 1);
    if (box.hidden) return;
    const steps = [...new Set(owners.flatMap((owner) => curves[owner].map(([step]) => step)))].sort((a, b) => a - b);
    const data = [steps, ...owners.map((owner) => {
      const at = new Map(curves[owner]);
      return steps.map((step) => at.get(step) ?? null);
    })];
    if (plot && names === owners.join()) { plot.setData(data); return; }
    plot?.destroy();
    names = owners.join();
    const axis = { stroke: soft, grid: { show: false }, ticks: { show: false }, size: 36 };
    const series = owners.map((owner, n) => ({ stroke: `hsl(${(n * 360) / owners.length} 65% 50%)`, width: 1.5, spanGaps: true, points: { show: false } }));
    plot = new uPlot({
      ...size(), legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false } }, axes: [axis, { ...axis }], series: [{}, ...series],
    }, data, place);
  };
  const size = () => ({ width: place.clientWidth, height: Math.round(place.clientWidth * 0.6) });
  addEventListener("resize", () => plot?.setSize(size()));
  document.getElementById("board").addEventListener("curves", (event) => draw(JSON.parse(event.detail.data)));
}
