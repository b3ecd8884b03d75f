package search

import (
	"math"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// question is what was asked.
type question struct {
	groups []group
	kind   Kind
	// vague means that it has no verb: as a rule it is for something to read.
	vague bool
	// many is above zero if it asks for many things, below if for one.
	many int
	// places are the indexes that it names.
	places []*Index
}

// group is one word of a question, in all forms in which an entry may have it.
type group struct {
	forms  []form
	weight float32 // how much the word tells
	places []*Index
}

// names reports whether the word is the name of the index, and so says nothing of its entries.
func (g group) names(x *Index) bool { return slices.Contains(g.places, x) }

type form struct {
	stem   string
	weight float32 // of the word itself 1
}

// Verb is what a word says about what is done, or zero.
func Verb(word string) Kind {
	switch word {
	case "get", "fetch", "list", "show", "see", "find", "read", "look", "view", "retrieve", "search", "lookup", "check",
		"which", "what", "who", "how", "whether", "is", "does", "did", "do", "are", "was", "count", "download", "export",
		"inspect", "query", "status", "state", "history", "describe", "where", "when", "display":
		return Read
	case "create", "add", "make", "new", "send", "post", "upload", "open", "start", "insert", "register", "invite",
		"submit", "issue", "generate", "publish", "write", "import", "enroll", "build", "buy", "leave", "give", "run":
		return Create
	case "update", "change", "edit", "modify", "set", "rename", "move", "assign", "mark", "replace", "adjust", "turn",
		"enable", "disable", "lock", "resize", "limit", "put", "patch", "scale", "pause", "resume":
		return Change
	case "delete", "remove", "drop", "revoke", "unlink", "kick", "erase", "clear", "destroy", "uninstall", "detach",
		"unassign", "unsubscribe", "unfollow":
		return Delete
	case "stop", "cancel", "abort", "disconnect", "end", "reset", "void":
		return Delete | Change
	}
	return 0
}

// stops are words that tell nothing.
const stops = " a an the of to in into on onto for from with without and or not no my me i we our us you your it its " +
	"he this that these those there here by at as be been being is are was were am do does did done can could should " +
	"will would may might must have has had having one some any all each every both many much more most just only also " +
	"what which who whom whose how when where why whether if then than so up out off over about after before between " +
	"again please want need let lets someone somebody something somewhere them they their "

func stop(word string) bool { return strings.Contains(stops, " "+word+" ") }

// The weights of forms and words.
const (
	verbWeight   = 0.45 // of a word that says what is done
	joinedWeight = 0.9
	// rarity is the power of a word's rarity that is its weight: below 1, so that one rare word does not outdo several.
	rarity = 0.8
	// whoWeight is for the people that "who" asks for.
	whoWeight = 0.4
	// verbPhrase is for phrases that say what is done; phraseRest is for the first word of a phrase alone.
	verbPhrase = 0.7
	phraseRest = 0.3
	typoWeight = 0.7
	// participleWeight is for a verb that describes a thing: "a running call".
	participleWeight = 0.6
)

// parse reads a question.
func parse(all []*Index, text string) (q question) {
	var words []string
	Words(text, func(w string) {
		if len(words) < MaxQuery {
			words = append(words, w)
		}
	})
	entries, nouns := 0, 0
	for _, x := range all {
		entries += x.Len()
	}
	lexicon := &lexicon{all: all, entries: float64(entries), left: maxCompared}
	used := 0        // words before this one are part of a phrase
	without := false // what something is to be without is not looked for: "a chat without its messages"
	for i, w := range words {
		without = (without || w == "without" && nouns > 0) && !strings.Contains(" of in for from on to ", " "+w+" ")
		if without {
			continue
		}
		if i < used {
			continue
		}
		if p, behind := phraseAt(words, i); p != nil {
			if q.kind == 0 && nouns == 0 {
				q.kind = p.does
			}
			if p.does == 0 {
				nouns++
			}
			q.groups = append(q.groups, lexicon.meaning(w, p))
			if behind == i+1 {
				used = behind + 1
			}
			continue
		}
		if w == "who" && i == 0 {
			defer func() { q.groups = append(q.groups, lexicon.people()) }()
		}
		k := Verb(w)
		if k == 0 && i == 0 && len(words) > 1 && article(words[1]) { // "refund a charge"
			k = Create | Change
		}
		if q.kind == 0 && nouns == 0 {
			q.kind = k
		}
		q.number(w)
		if stop(w) {
			continue
		}
		nouns++
		g := lexicon.group(w, words[i+1:])
		if len(g.places) > 0 {
			q.places = append(q.places, g.places...)
		}
		if slices.ContainsFunc(q.groups, func(o group) bool { return o.forms[0].stem == g.forms[0].stem }) {
			continue
		}
		switch {
		case Verb(w) != 0:
			g.weight *= verbWeight
		case participle(w):
			g.weight *= participleWeight
		}
		q.groups = append(q.groups, g)
	}
	q.vague = q.kind == 0 // "cards of a customer"
	return q
}

// participle reports whether a word is a form of one that Verb knows, other than that itself.
func participle(w string) bool {
	base, ing := strings.CutSuffix(w, "ing")
	if !ing {
		if base, ing = strings.CutSuffix(w, "ed"); !ing {
			return false
		}
	}
	return Verb(base) != 0 || Verb(base+"e") != 0 || Verb(undouble(base)) != 0
}

// phraseAt finds a phrase of the thesaurus that begins with a word: two words side by side ("virtual machine"), or a
// verb with an adverb behind what it is done to ("turn reminders off"). behind is where its second word is.
func phraseAt(words []string, i int) (p *phrase, behind int) {
	const far = 5
	for j := i + 1; j < len(words) && j <= i+far; j++ {
		if j > i+1 && !strings.Contains(" up down out back off on away ", " "+words[j]+" ") {
			continue
		}
		if p := phrases()[plural(words[i])+"_"+plural(words[j])]; p != nil {
			return p, j
		}
	}
	return nil, 0
}

// people is the group of "who".
func (l *lexicon) people() group {
	var g group
	best := 0
	for _, w := range []string{"member", "user", "people", "person"} {
		if n := l.count(Stem(w)); n > 0 {
			g.forms = append(g.forms, form{Stem(w), 1})
			best = max(best, n)
		}
	}
	g.weight = whoWeight * l.weight(best)
	return g
}

// meaning is the group of a phrase that begins with a word.
func (l *lexicon) meaning(word string, p *phrase) group {
	g := group{forms: []form{{Stem(word), phraseRest}}}
	best := 0
	for _, f := range p.means {
		if n := l.count(f.stem); n > 0 {
			g.forms = append(g.forms, f)
			best = max(best, n)
		}
	}
	g.weight = l.weight(max(best, int(l.entries)/50))
	if p.does != 0 {
		g.weight *= verbPhrase
	}
	return g
}

func article(word string) bool { return word == "a" || word == "an" || word == "the" || word == "this" }

// number notes whether a word asks for many things or for one.
func (q *question) number(w string) {
	switch {
	case q.many != 0:
	case w == "all" || w == "list" || w == "many" || w == "every":
		q.many = 1
	case w == "a" || w == "an" || w == "one" || w == "this" || w == "single":
		q.many = -1
	case !stop(w) && Verb(w) == 0 && plural(w) != w:
		q.many = 1
	}
}

// lexicon knows the words of all indexes.
type lexicon struct {
	all     []*Index
	entries float64
	left    int            // how many more stems unknown words are compared with
	counts  map[string]int // what count has returned
}

// maxCompared is how many stems the unknown words of one question are compared with.
const maxCompared = 200_000

// count is how many entries have a stem.
func (l *lexicon) count(stem string) int {
	if n, known := l.counts[stem]; known {
		return n
	}
	n := 0
	for _, x := range l.all {
		if i, ok := x.find(stem); ok {
			n += int(x.counts[i])
		}
	}
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.counts[stem] = n
	return n
}

// weight is the information in a stem, given how many entries have it.
func (l *lexicon) weight(count int) float32 {
	return float32(math.Pow(math.Log(1+(l.entries-float64(count)+0.5)/(float64(count)+0.5)), rarity))
}

// group makes the group of a word. rest are the words after it.
func (l *lexicon) group(word string, rest []string) group {
	stem := Stem(word)
	g := group{forms: []form{{stem, 1}}}
	n := l.count(stem)
	for _, x := range l.all {
		if len(x.named) == 1 && x.named[0] == stem || len(x.named) > 1 && follows(x.named, stem, rest) {
			g.places = append(g.places, x)
		}
	}
	for _, near := range thesaurus()[stem] {
		if l.count(near.stem) > 0 {
			g.forms = append(g.forms, near)
		}
	}
	if len(rest) > 0 { // "cron job" is "cronjob" elsewhere
		if joined := Stem(word + rest[0]); l.count(joined) > 0 {
			g.forms = append(g.forms, form{joined, joinedWeight})
		}
	}
	if n == 0 && len(g.places) == 0 {
		g.forms = append(g.forms, l.unknown(word, stem)...)
	}
	best := 0
	for _, f := range g.forms[:min(2, len(g.forms))] {
		best = max(best, l.count(f.stem))
	}
	g.weight = l.weight(max(n, best/2))
	if len(g.forms) == 1 && n == 0 {
		g.weight = l.weight(int(l.entries) / 50) // a word that nobody knows tells nothing, but shows in the share
	}
	return g
}

// follows reports whether the words of a name begin with a stem and continue with the words after it.
func follows(named []string, stem string, rest []string) bool {
	if named[0] != stem || len(rest) < len(named)-1 {
		return false
	}
	for i, n := range named[1:] {
		if Stem(rest[i]) != n {
			return false
		}
	}
	return true
}

// unknown are the forms of a word that no entry has: two words written as one, or the nearest word.
func (l *lexicon) unknown(word, stem string) []form {
	const least = 3
	for i := least; i <= len(word)-least; i++ {
		if a, b := Stem(word[:i]), Stem(word[i:]); l.count(a) > 0 && l.count(b) > 0 {
			return []form{{a, joinedWeight}, {b, joinedWeight}}
		}
	}
	if len(stem) <= least {
		return nil
	}
	limit := 1 + len(stem)/6
	var near []form
	seen := map[string]bool{} // many indexes have the same words
	best := limit + 1
	for _, x := range l.all {
		from, _ := x.find(stem[:1]) // the first letter is seldom wrong
		for i := from; i < len(x.ends); i++ {
			s := x.stem(i)
			if s[0] != stem[0] {
				break
			}
			if len(s) < len(stem)-limit || len(s) > len(stem)+limit {
				continue
			}
			if seen[s] {
				continue
			}
			seen[s] = true
			if l.left--; l.left < 0 {
				return near
			}
			if d := typo.Distance(stem, s, best+1); d < best {
				best, near = d, []form{{s, typoWeight}}
			} else if d == best && len(near) < 4 && d <= limit && !slices.Contains(near, form{s, typoWeight}) {
				near = append(near, form{s, typoWeight})
			}
		}
	}
	return near
}
