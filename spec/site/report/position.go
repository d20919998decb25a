// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/caisson-os/caisson/internal/plain"
)

// Source is one file that was read.
type Source struct {
	Name    string
	Data    []byte // kept for excerpts; nil for large generated files
	Lenient bool   // Divingbell's own file: what Divingbell ignores is a warning
}

// Pos is a place in a source. The zero pos is nowhere: a built-in default.
type Pos struct {
	Src       *Source
	Line, Col int32
}

func (p Pos) String() string {
	if p.Src == nil {
		return "default"
	}
	return fmt.Sprintf("%s:%d:%d", p.Src.Name, p.Line, p.Col)
}

// excerpt returns the source line and the marks below it.
func (p Pos) excerpt() (line, marks string) {
	if p.Src == nil || p.Line < 1 {
		return "", ""
	}
	data := p.Src.Data
	for range p.Line - 1 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return "", ""
		}
		data = data[i+1:]
	}
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		data = data[:i]
	}
	line = strings.ReplaceAll(strings.TrimRight(string(data[:min(len(data), 400)]), "\r"), "\t", " ")
	text := []rune(plain.Line(line)) // one for one, so that columns stay
	start := min(max(int(p.Col)-1, 0), len(text))
	n := 0
	for start+n < len(text) && !strings.ContainsRune(" ,]}#", text[start+n]) {
		if text[start+n] == ':' && (start+n+1 == len(text) || text[start+n+1] == ' ') {
			break // it ends a key
		}
		n++
	}
	const width = 110
	if start > width {
		return "", "" // what would be underlined is out of sight
	}
	shown := text[:min(len(text), width)]
	n = min(max(n, 1), width-start+1)
	return string(shown), strings.Repeat(" ", utf8.RuneCountInString(string(text[:start]))) + strings.Repeat("^", n)
}
