const cities = { Berlin: [52.52, 13.41], Tokyo: [35.68, 139.69] };
const temperatures = await Promise.all(Object.entries(cities).map(async ([city, [latitude, longitude]]) => {
  const query = "latitude=" + latitude + "&longitude=" + longitude + "&current=temperature_2m";
  const answer = await fetch("https://api.open-meteo.com/v1/forecast?" + query);
  if (!answer.ok) throw new Error(answer.status + " " + await answer.text());
  return [city, (await answer.json()).current.temperature_2m + " °C"];
}));
console.log(Object.fromEntries(temperatures));
