// SPDX-License-Identifier: Apache-2.0

package site

import (
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec/site/report"
)

// Text is a scalar's literal text and its place.
type Text struct {
	S  string
	At report.Pos
}

// Set says whether the author wrote it.
func (t Text) Set() bool { return t.At != report.Pos{} }

func (t *Text) decode(c *checker, v *value) {
	if c.want(v, scalar) {
		*t = Text{v.text, v.at}
	}
}

// Flag is yes or no in any of YAML 1.1's words, quoted or not.
type Flag struct {
	On bool
	At report.Pos
}

func (f *Flag) decode(c *checker, v *value) {
	if !c.want(v, scalar) {
		return
	}
	on, ok := flagWord(v.text)
	if !ok {
		c.errorf(v.at, "type", "write true or false", "%q is neither true nor false", v.text)
		return
	}
	*f = Flag{on, v.at}
}

func flagWord(text string) (on, ok bool) {
	switch strings.ToLower(text) {
	case "true", "on", "yes", "y":
		return true, true
	case "false", "off", "no", "n":
		return false, true
	}
	return false, false
}

// Number is an integer of at most 18 digits.
type Number struct {
	N  int64
	At report.Pos
}

// Set says whether the author wrote it.
func (n Number) Set() bool { return n.At != report.Pos{} }

func (n *Number) decode(c *checker, v *value) {
	if !c.want(v, scalar) {
		return
	}
	i, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil || i > math.MaxInt64/10 || i < -math.MaxInt64/10 {
		c.errorf(v.at, "type", "", "%q is not a whole number", v.text)
		return
	}
	*n = Number{i, v.at}
}

// Map is a map whose keys are the author's, in the author's order.
type Map[T any] []Entry[T]

// Entry is one key of a [Map].
type Entry[T any] struct {
	Key  Text
	Val  T
	Null bool // nothing stands after the key
}

func (m *Map[T]) decode(c *checker, v *value) {
	if !c.want(v, mapping) {
		return
	}
	*m = make(Map[T], len(v.fields))
	// A list or map may be null as a whole: that is how an override takes all of
	// an interface's features away.
	nullable := reflect.TypeFor[T]().Kind() == reflect.Slice
	for i, f := range v.fields {
		(*m)[i].Key, (*m)[i].Null = Text{f.key, f.at}, f.val.kind == null
		c.push(f.key)
		if f.val.kind == null && !nullable {
			c.errorf(f.at, "null", "take the key away, or write \"\" where text is empty", "the value is missing")
		}
		c.decode(f.val, &(*m)[i].Val)
		c.pop()
	}
}

// Words is a list of texts, or one text with blanks between the words.
type Words struct {
	List []string
	At   report.Pos
}

// Set says whether the author wrote it.
func (w Words) Set() bool { return w.At != report.Pos{} }

func (w *Words) decode(c *checker, v *value) {
	w.At = v.at
	if v.kind == scalar {
		w.List = append(w.List, strings.Fields(v.text)...) // nil when there are none
		return
	}
	var list []Text
	c.decode(v, &list)
	for _, t := range list {
		w.List = append(w.List, t.S)
	}
}

// Raw is a value that is decoded later, as a T.
type Raw[T any] struct{ v *value }

func (r *Raw[T]) decode(_ *checker, v *value) { r.v = v }
