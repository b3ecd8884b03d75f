package search

import (
	"math"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/wordvector"
)

type parsedQuery struct {
	groups []wordForms
	vector wordvector.Vector
	kind   Kind
	// many is above zero if the question asks for many things, and below zero if it asks for one.
	many int
	// places are the indexes that the question names.
	places []*Index
}

// wordForms is one word of a question, in all forms that an entry may use.
type wordForms struct {
	forms  []wordForm
	weight float32 // the information in the word
	places []*Index
}

type wordForm struct {
	stem   string
	weight float32 // 1 for the word itself
}

// VerbKind returns the action that a word names, or zero.
func VerbKind(word string) Kind {
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

// stops are words without information.
const stops = " a an the of to in into on onto for from with without and or not no my me i we our us you your it its " +
	"he this that these those there here by at as be been being is are was were am do does did done can could should " +
	"will would may might must have has had having one some any all each every both many much more most just only also " +
	"what which who whom whose how when where why whether if then than so up out off over about after before between " +
	"again please want need let lets someone somebody something somewhere them they their "

func isStop(word string) bool { return strings.Contains(stops, " "+word+" ") }

func parseQuery(all []*Index, text string) (q parsedQuery) {
	var words []string
	EachWord(text, func(w string) {
		if len(words) < MaxQuery {
			words = append(words, w)
		}
	})
	entries := 0
	for _, x := range all {
		entries += x.Len()
	}
	lexicon := &wordLexicon{all: all, entries: float64(entries), left: maxCompared, counts: map[string]int{}}
	for i, w := range words {
		k := VerbKind(w)
		if k == 0 && i == 0 && len(words) > 1 && isArticle(words[1]) { // "refund a charge"
			k = Create | Change
		}
		// The verb at the start of a question names the action; later ones belong to things.
		if q.kind == 0 && len(q.groups) == 0 {
			q.kind = k
		}
		q.setNumber(w)
		if isStop(w) {
			continue
		}
		g := lexicon.wordGroup(w, words[i+1:])
		q.places = append(q.places, g.places...)
		if !slices.ContainsFunc(q.groups, func(o wordForms) bool { return o.forms[0].stem == g.forms[0].stem }) {
			q.groups = append(q.groups, g)
		}
	}
	var sum wordvector.TextSum
	q.vector = sum.VectorOf(strings.Join(words, " "), EachWord)
	return q
}

func isArticle(word string) bool {
	return word == "a" || word == "an" || word == "the" || word == "this"
}

// setNumber notes whether a word asks for many things or for one.
func (q *parsedQuery) setNumber(w string) {
	switch {
	case q.many != 0:
	case w == "all" || w == "list" || w == "many" || w == "every":
		q.many = 1
	case w == "a" || w == "an" || w == "one" || w == "this" || w == "single":
		q.many = -1
	case !isStop(w) && VerbKind(w) == 0 && dropPlural(w) != w:
		q.many = 1
	}
}

// wordLexicon knows the words of all indexes.
type wordLexicon struct {
	all     []*Index
	entries float64
	left    int            // the number of stems that unknown words may still be compared with
	counts  map[string]int // cached results of count
}

// maxCompared bounds the stems that the unknown words of one question are compared with.
const maxCompared = 200_000

func (l *wordLexicon) countEntries(stem string) int {
	n, known := l.counts[stem]
	if known {
		return n
	}
	for _, x := range l.all {
		if i, ok := x.findTerm(stem); ok {
			n += int(x.counts[i])
		}
	}
	l.counts[stem] = n
	return n
}

// informationOf returns the information in a stem, given the number of entries with it.
func (l *wordLexicon) informationOf(count int) float32 {
	return float32(math.Log(1 + (l.entries-float64(count)+0.5)/(float64(count)+0.5)))
}

// usualCount returns the count of a word with little information. Words that no entry has count like such a word.
func (l *wordLexicon) usualCount() int { return int(l.entries) / 50 }

// Words of similar meaning: the least similarity, the part of it that is their weight, and their largest number.
// Without them, the right entry of many documents is among the first five for 1 % fewer questions.
const (
	nearLeast  = 0.44
	nearWeight = 0.67
	maxNear    = 8
)

// wordGroup returns the group of a word. rest are the words after it.
func (l *wordLexicon) wordGroup(word string, rest []string) wordForms {
	stem := StemWord(word)
	g := wordForms{forms: []wordForm{{stem, 1}}}
	n := l.countEntries(stem)
	for _, x := range l.all {
		if len(x.named) > 0 && x.named[0] == stem && startsWithRest(x.named[1:], rest) {
			g.places = append(g.places, x)
		}
	}
	for near, likeness := range wordvector.NearStems(stem) {
		// The list is sorted, so the rest is less similar still.
		if likeness < nearLeast || len(g.forms) > maxNear {
			break
		}
		if l.countEntries(near) > 0 {
			g.forms = append(g.forms, wordForm{near, nearWeight * likeness})
		}
	}
	if len(rest) > 0 { // "cron job" is "cronjob" elsewhere
		if joined := StemWord(word + rest[0]); l.countEntries(joined) > 0 {
			g.forms = append(g.forms, wordForm{joined, 1})
		}
	}
	// A word that some entry has is most likely spelt as meant.
	if n == 0 && len(g.places) == 0 {
		g.forms = append(g.forms, l.guessForms(word, stem)...)
	}
	switch {
	case n > 0:
	case len(g.forms) > 1:
		n = l.countEntries(g.forms[1].stem)
	default: // an unknown word has no information, but lowers the share
		n = l.usualCount()
	}
	g.weight = l.informationOf(n)
	return g
}

// startsWithRest reports whether words start with the rest of a name.
func startsWithRest(named, words []string) bool {
	if len(words) < len(named) {
		return false
	}
	return slices.EqualFunc(words[:len(named)], named, func(word, n string) bool { return StemWord(word) == n })
}

// guessForms returns the forms of a word that no entry has: two words written as one, or the nearest words.
func (l *wordLexicon) guessForms(word, stem string) []wordForm {
	const least = 3
	for i := least; i <= len(word)-least; i++ {
		if a, b := StemWord(word[:i]), StemWord(word[i:]); l.countEntries(a) > 0 && l.countEntries(b) > 0 {
			return []wordForm{{a, 1}, {b, 1}}
		}
	}
	if len(stem) <= least {
		return nil
	}
	limit := 1 + len(stem)/6
	var near []wordForm
	seen := map[string]bool{} // many indexes have the same words
	best := limit + 1
	for _, x := range l.all {
		from, _ := x.findTerm(stem[:1]) // the first letter is seldom wrong
		for i := from; i < len(x.ends); i++ {
			s := x.stemOf(i)
			if s[0] != stem[0] {
				break
			}
			if len(s) < len(stem)-limit || len(s) > len(stem)+limit || seen[s] {
				continue
			}
			seen[s] = true
			if l.left--; l.left < 0 {
				return near
			}
			if d := typo.CountSlips(stem, s, best+1); d < best {
				best, near = d, []wordForm{{s, 1}}
			} else if d == best && len(near) < 4 && d <= limit {
				near = append(near, wordForm{s, 1})
			}
		}
	}
	return near
}
