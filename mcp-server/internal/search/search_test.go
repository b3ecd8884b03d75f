package search

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"/v1/payment_intents/{intent}": "payment intents intent",
		"listRepoIssues":               "list repo issues",
		"DNSRecords HTTPServer URLs":   "dns records http server urls",
		"load_15 2010-04-01 v2":        "load 15 04 01",
		"the owner's café":             "the owners café",
		"":                             "",
		strings.Repeat("x", 40) + " y": "y",
		"OAuth2 CronJob admin.users.setOwner\u0000\xffz": "oauth2 cron job admin users set owner z",
	} {
		var got []string
		EachWord(text, func(w string) { got = append(got, w) })
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestStem: the forms of a word have one stem, and different words have different ones.
func TestStem(t *testing.T) {
	for _, forms := range []string{
		"create creates created creating creation", "delete deleting deletion", "issue issues issued", "company companies",
		"verify verifies verified verification", "cancel cancels canceled cancellation", "refund refunds refunded refunding",
		"branch branches", "address addresses", "deploy deployed deploying deploys", "status", "access", "list lists listing", "configure configuration",
	} {
		list := strings.Fields(forms)
		for _, f := range list {
			if StemWord(f) != StemWord(list[0]) {
				t.Errorf("%s is %q, %s is %q", f, StemWord(f), list[0], StemWord(list[0]))
			}
		}
	}
	for _, pair := range []string{"user use", "charge char", "bus business", "need feed", "king ring"} {
		a, b, _ := strings.Cut(pair, " ")
		if StemWord(a) == StemWord(b) {
			t.Errorf("%s and %s are both %q", a, b, StemWord(a))
		}
	}
}

// build makes an index of lines "KIND words".
func build(name string, lines ...string) *Index {
	b := NewBuilder(name)
	for _, l := range lines {
		kind, text, _ := strings.Cut(l, " ")
		b.AddEntry(IndexEntry{Kind: map[string]Kind{"GET": Read | Collection, "ONE": Read, "POST": Create, "PUT": Change, "DELETE": Delete, "OLD": Read | Deprecated, "-": 0}[kind],
			Meaning: []WeightedText{{text, 1}}, Fields: []Field{{Text: text, Weight: 2}}})
	}
	return b.BuildIndex()
}

func TestSearch(t *testing.T) {
	shop := build("shop", "GET refunds", "POST refunds create", "ONE refunds", "GET charges list", "POST customers create", "DELETE customers delete", "OLD charges list old")
	music := build("music", "PUT tracks save", "GET tracks saved", "POST player queue", "DELETE playlists followers", "GET cronjobs")
	for question, want := range map[string]string{
		"list the refunds":        "shop 0",
		"get a refund":            "shop 2",
		"erase a client":          "shop 5",  // neither word is there
		"save a song":             "music 0", // which the entry calls a track
		"charegs":                 "shop 3",  // misspelt
		"cron jobs":               "music 4",
		"cronjob":                 "music 4",
		"all the charges":         "shop 3",
		"saved tracks in shop":    "music 1", // the place is named, and has none
		"new customer at SHOP":    "shop 4",
		"":                        "",
		"the of and":              "",
		strings.Repeat("a ", 1e4): "",
	} {
		hits := Search([]*Index{shop, music}, question, 8)
		got := ""
		if len(hits) > 0 {
			got = fmt.Sprint(hits[0].Index.Name(), " ", hits[0].Entry)
		}
		if got != want {
			t.Errorf("%.40q: %q, want %q", question, got, want)
		}
		for i, h := range hits {
			if h.Share < 0 || h.Share > 1.001 || h.Share == 0 && h.Meaning < leastMeaning || h.Score <= 0 || i > 0 && h.Score > hits[i-1].Score {
				t.Errorf("%.40q: %+v", question, h)
			}
		}
	}
}

// TestUsual: of entries with the same text, the one that is not below another object comes first or second. This also
// holds if the question names that object.
func TestUsual(t *testing.T) {
	b := NewBuilder("shop")
	for _, below := range []string{"charges refunds", "charges refunds all", "charges refunds one"} {
		b.AddEntry(IndexEntry{Kind: Create | Nested, Title: "Create a refund", Meaning: []WeightedText{{below, 1}}, Fields: []Field{{Text: below, Weight: 3}}})
	}
	b.AddEntry(IndexEntry{Kind: Create | Nested, Title: "Other", Meaning: []WeightedText{{"charges refund", 1}}, Fields: []Field{{Text: "charges refund", Weight: 2}}})
	b.AddEntry(IndexEntry{Kind: Create, Title: "Create a refund", Meaning: []WeightedText{{"refunds", 1}}, Fields: []Field{{Text: "refunds", Weight: 2}}})
	if hits := Search([]*Index{b.BuildIndex()}, "refund a charge", 8); !slices.ContainsFunc(hits[:2], func(h Hit) bool { return h.Entry == 4 }) {
		t.Errorf("%+v", hits)
	}
}

// TestSearchAgain: what one search leaves behind changes no other, in whatever order the indexes come.
func TestSearchAgain(t *testing.T) {
	a, b := build("a", "GET x y", "POST y z", "GET z"), build("b", "GET y", "DELETE z y x")
	first := Search([]*Index{a, b}, "get y and z", 8)
	for range 3 {
		Search([]*Index{b}, "delete x", 1)
		if again := Search([]*Index{a, b}, "get y and z", 8); !slices.Equal(first, again) {
			t.Fatalf("%v, then %v", first, again)
		}
	}
}

// large is an index of many entries with words as often as languages have them.
func large(entries int) *Index {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not for secrets
	zipf := rand.NewZipf(random, 1.1, 4, 20000)
	b := NewBuilder("large")
	for range entries {
		var words [12]string
		for i := range words {
			n := zipf.Uint64()
			words[i] = string([]byte{byte('a' + n%26), byte('a' + n/26%26), byte('a' + n/676%26), byte('a' + n/17576)})
		}
		b.AddEntry(IndexEntry{Kind: Read, Meaning: []WeightedText{{strings.Join(words[:], " "), 1}},
			Fields: []Field{{Text: strings.Join(words[:4], "/"), Weight: 2, Bound: 4}, {Text: strings.Join(words[4:], " "), Weight: 2, Bound: 8}}})
	}
	return b.BuildIndex()
}

func BenchmarkSearch(b *testing.B) {
	for _, n := range []int{5000, 16000} {
		x := []*Index{large(n)}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				Search(x, "list aaaa baaa caba daaa of the eaaa", 8)
			}
		})
		b.Run(fmt.Sprint(n, " misspelt"), func(b *testing.B) {
			for b.Loop() {
				Search(x, "list aaaaxy bxyaaa caba", 8)
			}
		})
	}
}

func FuzzSearch(f *testing.F) {
	x := []*Index{build("shop", "GET refunds", "POST refunds create"), large(50)}
	for _, s := range []string{"refund", "shop refund", "a/b{c}", "\xff\x00", "É É", "shopshop refundscreate"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if hits := Search(x, s, 8); len(hits) > 8 {
			t.Fatal(len(hits))
		}
	})
}

// TestHostile: entries of very many different words make neither a large index nor a long search.
func TestHostile(t *testing.T) {
	b, word := NewBuilder("hostile"), 0
	for b.index.Len() < 3*maxTerms/100 {
		var text strings.Builder
		for range 100 {
			word++
			text.WriteString("word")
			for n := word; n > 0; n /= 20 {
				text.WriteByte("bcdfghjklmnpqrtvwxzy"[n%20])
			}
			text.WriteByte(' ')
		}
		b.AddEntry(IndexEntry{Meaning: []WeightedText{{text.String(), 1}}, Fields: []Field{{Text: text.String(), Weight: 1}}})
	}
	x := b.BuildIndex()
	if n := len(x.ends); n > maxTerms {
		t.Errorf("%d terms", n)
	}
	l := &wordLexicon{all: []*Index{x}, entries: float64(x.Len()), left: maxCompared, counts: map[string]int{}}
	for range 3 {
		_ = l.guessForms("wordaaaaa", "wordaaaaa")
	}
	if l.left > 0 {
		t.Errorf("%d comparisons are left: the rows are not what they should be", l.left)
	}
	costtest.RequireBounded(t, "a question of unknown words", 10*time.Second, func() {
		Search([]*Index{x, x, x, x}, strings.Repeat("wordaaaaa wordeeeee wordiiiii wordooooo ", 6), 8)
	})
}
