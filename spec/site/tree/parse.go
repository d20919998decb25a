// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/spec/site/report"
)

// Caps on input. A file beyond them is not a configuration.
const (
	MaxFile       = 16 << 20
	maxDepth      = 64
	maxIndicators = 3 << 19 // bounds the nodes, and so the memory, before anything is parsed
	maxExpanded   = 4 << 20 // nodes once every alias is written out
)

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// Parse returns the documents of a file.
func Parse(src *report.Source, data []byte, r *report.Report) (docs []*Value) {
	if tooManyValues(data) {
		r.Add(report.Problem{At: report.Pos{Src: src, Line: 1, Col: 1}, Severity: report.Error, Rule: "too-large",
			Message: "the file has too many values", Hint: "split it into several files"})
		return nil
	}
	return parse(src, data, 0, r)
}

// tooManyValues counts what may begin a value, before anything is parsed.
func tooManyValues(data []byte) bool {
	n := 0
	for _, indicator := range []string{"\n", ",", "[", "{", ": ", "- ", "? "} {
		n += bytes.Count(data, []byte(indicator))
	}
	return n > maxIndicators
}

// parse returns the documents in a part of a file, after so many lines.
func parse(src *report.Source, data []byte, before int, r *report.Report) (docs []*Value) {
	fail := func(line int, rule, hint, format string, args ...any) {
		r.Add(report.Problem{At: report.Pos{Src: src, Line: int32(before + line), Col: 1}, Severity: report.Error,
			Rule: rule, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	// The library parses recursively; a fault in it must not end the program.
	defer func() {
		if e := recover(); e != nil {
			fail(1, "yaml", "", "the YAML parser failed: %v", e)
			docs = nil
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			line := 1
			text := strings.TrimPrefix(err.Error(), "yaml: ")
			if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
				line, _ = strconv.Atoi(m[1]) // digits
				text = strings.TrimPrefix(text, "line "+m[1]+": ")
			}
			if col := tabAt(data, line); col > 0 && strings.Contains(text, "cannot start any token") {
				at := report.Pos{Src: src, Line: int32(before + line), Col: int32(col)}
				r.Add(report.Problem{At: at, Severity: report.Error, Rule: "yaml", Message: "a tab cannot indent YAML", Hint: "indent with spaces"})
				return nil
			}
			if at := templateLine(data); at > 0 && line == 1 { // the library names no line for it
				fail(at, "yaml", unrendered, "a template is left in the file")
				return nil
			}
			fail(line, "yaml", "", "not valid YAML: %s", text)
			return nil
		}
		c := converter{src: src, before: before, report: r, done: map[*yaml.Node]*Value{}}
		if v := c.convert(&node, 0); v != nil && !c.failed {
			docs = append(docs, v)
		}
	}
}

// unrendered is the hint for what a template engine was to fill in.
const unrendered = "render it first, as 'helm template' does: caisson evaluates no templates"

var templateStart = regexp.MustCompile(`(?m)^\s*\{\{`)

// templateLine returns the line of a file that begins with a template, or 0.
func templateLine(data []byte) int {
	at := templateStart.FindIndex(data)
	if at == nil {
		return 0
	}
	return 1 + bytes.Count(data[:at[1]], []byte("\n"))
}

// tabAt returns the column of a tab that indents a line, or 0.
func tabAt(data []byte, line int) int {
	lines := bytes.Split(data, []byte("\n"))
	if line > len(lines) {
		return 0
	}
	text := lines[line-1]
	indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
	return bytes.IndexByte(indent, '\t') + 1
}

// converter turns YAML nodes into values, each node once, aliases shared.
type converter struct {
	src    *report.Source
	before int // lines of the file before what is converted
	report *report.Report
	done   map[*yaml.Node]*Value // anchored nodes; nil while one is being converted
	failed bool
}

func (c *converter) at(n *yaml.Node) report.Pos {
	return report.Pos{Src: c.src, Line: int32(c.before + n.Line), Col: int32(n.Column)}
}

func (c *converter) fail(n *yaml.Node, rule, format string, args ...any) *Value {
	return c.failHint(n, rule, "", format, args...)
}

func (c *converter) failHint(n *yaml.Node, rule, hint, format string, args ...any) *Value {
	if !c.failed || rule == "duplicate-key" && len(c.report.Problems) < report.MaxProblems {
		c.report.Add(report.Problem{At: c.at(n), Severity: report.Error, Rule: rule, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	c.failed = true
	return &Value{At: c.at(n), size: 1}
}

func (c *converter) convert(n *yaml.Node, depth int) *Value {
	if depth > maxDepth {
		return c.fail(n, "too-deep", "nested more than %d deep", maxDepth)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return c.convert(n.Content[0], depth)
	case yaml.AliasNode:
		v, ok := c.done[n.Alias]
		if !ok || v == nil {
			return c.fail(n, "alias", "the alias *%s contains itself", n.Value)
		}
		return v
	}
	if n.Anchor != "" {
		c.done[n] = nil
	}
	v := &Value{At: c.at(n), size: 1}
	switch n.Kind {
	case yaml.ScalarNode:
		c.scalar(n, v)
	case yaml.SequenceNode:
		v.Kind = Sequence
		v.List = make([]*Value, len(n.Content))
		for i, e := range n.Content {
			v.List[i] = c.convert(e, depth+1)
			v.grow(v.List[i])
		}
	case yaml.MappingNode:
		v.Kind = Mapping
		c.mapping(n, v, depth)
	}
	if v.height > maxDepth {
		return c.fail(n, "too-deep", "nested more than %d deep once aliases are written out", maxDepth)
	}
	if v.size > maxExpanded {
		return c.fail(n, "too-large", "more than %d values once aliases are written out", maxExpanded)
	}
	if n.Anchor != "" {
		c.done[n] = v
	}
	n.Content = nil // of a large file the nodes are most of the memory
	return v
}

func (v *Value) grow(child *Value) {
	v.size += 1 + child.size
	v.height = max(v.height, child.height+1)
}

func (c *converter) scalar(n *yaml.Node, v *Value) {
	v.Plain = n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 &&
		(n.Style&yaml.TaggedStyle == 0 || n.Tag != "!!str") // which says what quotes say
	if v.Plain && n.ShortTag() == "!!null" {
		v.Kind = Null
		return
	}
	v.Kind, v.Text = Scalar, n.Value
	if n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(n.ShortTag(), "!!") {
		c.fail(n, "tag", "the tag %s has no meaning here", n.ShortTag())
	}
	if n.ShortTag() == "!!binary" {
		raw, err := base64.StdEncoding.DecodeString(n.Value)
		if v.Text = string(raw); err != nil {
			c.fail(n, "text", "what is tagged !!binary is not base64")
		}
	}
	if strings.ContainsRune(v.Text, 0) {
		c.fail(n, "text", "a value must not contain a NUL character")
	}
}

// braces reports whether a map was written as {{ … }}: one in braces, whose first
// key is another.
func braces(n *yaml.Node) bool {
	flow := func(n *yaml.Node) bool { return n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 }
	return flow(n) && len(n.Content) > 0 && flow(n.Content[0])
}

// mapping takes keys and, where the author did not write them, those of "<<".
func (c *converter) mapping(n *yaml.Node, v *Value, depth int) {
	seen := make(map[string]bool, len(n.Content)/2)
	v.Fields = make([]Field, 0, len(n.Content)/2)
	var merges []*Value
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			if braces(n) || braces(k) {
				c.failHint(k, "template", unrendered, "a key must be plain text: this is a template, {{ … }}")
				continue
			}
			c.fail(k, "key", "a key must be plain text")
			continue
		}
		val := c.convert(n.Content[i+1], depth+1)
		v.grow(val)
		if k.Value == "<<" && k.ShortTag() == "!!merge" {
			merges = append(merges, val)
			continue
		}
		if seen[k.Value] {
			c.fail(n.Content[i], "duplicate-key", "the key %q is given twice", k.Value)
			continue
		}
		seen[k.Value] = true
		v.Fields = append(v.Fields, Field{k.Value, c.at(n.Content[i]), val})
	}
	if v.size > maxExpanded {
		return // an error, whatever is merged
	}
	for _, m := range merges {
		c.merge(n, v, m, seen)
	}
}

// merge takes the fields of what "<<" names that a map does not have yet: a map, or a list of them.
func (c *converter) merge(n *yaml.Node, into, from *Value, seen map[string]bool) {
	switch from.Kind {
	case Sequence:
		for _, m := range from.List {
			c.merge(n, into, m, seen)
		}
	case Mapping:
		for _, f := range from.Fields {
			if !seen[f.Key] {
				seen[f.Key] = true
				into.Fields = append(into.Fields, f)
			}
		}
	default:
		c.fail(n, "merge-key", "what << names must be a map")
	}
}

// Encode writes plain data, or nodes of it, as a document of YAML.
func Encode(doc any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(doc); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
