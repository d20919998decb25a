// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Text is a scalar's literal text and its place: one line without control characters,
// which mean nothing in a name, a path or a value and would be shown on terminals.
type Text struct {
	S  string
	At report.Pos
}

// Set says whether the author wrote it.
func (t Text) Set() bool { return t.At != report.Pos{} }

func (t *Text) Decode(c *Checker, v *tree.Value) {
	if c.Want(v, tree.Scalar) {
		c.line(v.Text, v.At)
		*t = Text{v.Text, v.At}
	}
}

// line reports what [rules.Hidden] finds.
func (c *Checker) line(text string, at report.Pos) {
	i := strings.IndexFunc(text, rules.Hidden)
	if i < 0 {
		return
	}
	switch r, _ := utf8.DecodeRuneInString(text[i:]); {
	case r == '\n' || r == '\r':
		c.Errorf(at, "text", "", "a value must be one line")
	case unicode.IsControl(r):
		c.Errorf(at, "text", "", "%.80q has a control character", text)
	default:
		c.Errorf(at, "text", "", "%.80q has the character %U, which is not shown", text, r)
	}
}

// Block is a Text of several lines, or of any characters: what is written to a file or
// handed to a program as it is.
type Block struct{ Text }

func (b *Block) Decode(c *Checker, v *tree.Value) {
	if c.Want(v, tree.Scalar) {
		b.Text = Text{v.Text, v.At}
	}
}

// Flag is yes or no in any of YAML 1.1's words, quoted or not.
type Flag struct {
	On bool
	At report.Pos
}

func (f *Flag) Decode(c *Checker, v *tree.Value) {
	if !c.Want(v, tree.Scalar) {
		return
	}
	on, ok := FlagWord(v.Text)
	if !ok {
		c.Errorf(v.At, "type", "write true or false", "%q is neither true nor false", v.Text)
		return
	}
	*f = Flag{on, v.At}
}

// FlagWord reads one of YAML 1.1's words for yes and no.
func FlagWord(text string) (on, ok bool) {
	text = strings.ToLower(text)
	on = slices.Contains([]string{"true", "on", "yes", "y"}, text)
	return on, on || slices.Contains([]string{"false", "off", "no", "n"}, text)
}

// Number is an integer of at most 18 digits.
type Number struct {
	N  int64
	At report.Pos
}

// Set says whether the author wrote it.
func (n Number) Set() bool { return n.At != report.Pos{} }

func (n *Number) Decode(c *Checker, v *tree.Value) {
	if !c.Want(v, tree.Scalar) {
		return
	}
	i, err := strconv.ParseInt(v.Text, 10, 64)
	if err != nil || i > math.MaxInt64/10 || i < -math.MaxInt64/10 {
		c.Errorf(v.At, "type", "", "%q is not a whole number", v.Text)
		return
	}
	*n = Number{i, v.At}
}

// Duration is a length of time: a whole number of one of s, m, h, d and w, as in 90m, 12h or 30d.
type Duration struct {
	D  time.Duration
	At report.Pos
}

// Set says whether the author wrote it.
func (d Duration) Set() bool { return d.At != report.Pos{} }

// maxDuration keeps what is computed with it from overflowing.
const maxDuration = 100 * 365 * 24 * time.Hour

var durationText = regexp.MustCompile(`^([1-9][0-9]{0,4})([smhdw])$`)

func (d *Duration) Decode(c *Checker, v *tree.Value) {
	d.decode(c, v, durationText, "as in 30d or 12h")
}

func (d *Duration) decode(c *Checker, v *tree.Value, text *regexp.Regexp, example string) {
	if !c.Want(v, tree.Scalar) {
		return
	}
	m := text.FindStringSubmatch(v.Text)
	if m == nil {
		c.Errorf(v.At, "duration", example, "%q is not a length of time", v.Text)
		return
	}
	n, _ := strconv.Atoi(m[1]) // at most five digits
	unit := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}[m[2]]
	if time.Duration(n) > maxDuration/unit {
		c.Errorf(v.At, "range", "", "%q is longer than a hundred years", v.Text)
		return
	}
	*d = Duration{time.Duration(n) * unit, v.At}
}

// Pause is a [Duration] that may be none: 0s.
type Pause struct{ Duration }

var pauseText = regexp.MustCompile(`^(0|[1-9][0-9]{0,4})([smhdw])$`)

func (p *Pause) Decode(c *Checker, v *tree.Value) {
	p.decode(c, v, pauseText, "as in 10m, or 0s for none")
}

// Map is a map whose keys are the author's, in the author's order.
type Map[T any] []Entry[T]

// Entry is one key of a [Map].
type Entry[T any] struct {
	Key  Text
	Val  T
	Null bool // nothing stands after the key
}

func (m *Map[T]) Decode(c *Checker, v *tree.Value) {
	if !c.want(v, tree.Mapping, insteadOfMap(v, reflect.TypeFor[T]())) {
		return
	}
	defer func(as string) { c.as = as }(c.as)
	c.as = ""
	*m = make(Map[T], len(v.Fields))
	// A list or map may be null as a whole: that is how an override takes all of
	// an interface's features away.
	nullable := reflect.TypeFor[T]().Kind() == reflect.Slice
	for i, f := range v.Fields {
		(*m)[i].Key, (*m)[i].Null = Text{f.Key, f.At}, f.Val.Kind == tree.Null
		c.Push(f.Key)
		c.line(f.Key, f.At)
		c.Refuse(f.Val.Kind == tree.Null && !nullable, f.At, "null", "take the key away, or write \"\" where text is empty",
			"the value is missing")
		c.Decode(f.Val, &(*m)[i].Val)
		c.Pop()
	}
}

// Entries reads a [Map], and does f inside each of its entries.
func Entries[T any](c *Checker, v *tree.Value, f func(Entry[T])) {
	for _, e := range Read[Map[T]](c, v) {
		c.In(e.Key.S, func() { f(e) })
	}
}

// Words is a list of texts, or one text with blanks between the words.
type Words struct {
	List []string
	Each []report.Pos // where each word was written
	At   report.Pos
}

// Set says whether the author wrote it.
func (w Words) Set() bool { return w.At != report.Pos{} }

func (w *Words) Decode(c *Checker, v *tree.Value) {
	w.At = v.At
	if v.Kind == tree.Scalar {
		w.List = append(w.List, strings.Fields(v.Text)...) // nil when there are none
		w.Each = slices.Repeat([]report.Pos{v.At}, len(w.List))
		return
	}
	for _, t := range Read[[]Text](c, v) {
		w.List, w.Each = append(w.List, t.S), append(w.Each, t.At)
	}
}

// Raw is a value that is decoded later, as a T.
type Raw[T any] struct{ V *tree.Value }

func (r *Raw[T]) Decode(_ *Checker, v *tree.Value) { r.V = v }
