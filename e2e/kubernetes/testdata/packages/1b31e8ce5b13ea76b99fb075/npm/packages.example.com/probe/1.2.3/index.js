export default "a package of npm";
