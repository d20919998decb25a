// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"iter"
	"regexp"

	"github.com/caisson-os/caisson/spec/site/report"
)

// pieceSize is how much of a list is parsed at a time: the library takes some forty times
// as much memory.
const pieceSize = 256 << 10

// listKey is a line with nothing but a key.
var listKey = regexp.MustCompile(`^([a-z]+):(?: +#.*| *)$`)

// Entries parses a file that is one long list, below the key or without it, and gives its
// entries in turn: a tree of all of it would take most of the memory of a large site. False
// where the file is anything else, or short. Faults go to r; as they may be those of a list
// that was taken apart, a caller that meets one reads the whole file with [Parse].
func Entries(src *report.Source, data []byte, key string, r *report.Report) (entries iter.Seq[*Value], ok bool) {
	pieces := split(data, key)
	if len(pieces) < 2 || tooManyValues(data) {
		return nil, false
	}
	return func(yield func(*Value) bool) {
		for _, p := range pieces {
			for _, doc := range parse(src, p.data, p.line, r) {
				for _, e := range doc.List {
					if !yield(e) {
						return
					}
				}
			}
		}
	}, true
}

// piece is entries of a list, and the number of lines before them.
type piece struct {
	data []byte
	line int
}

// split cuts a list at lines that begin an entry. It gives none where anything is written
// that might not mean the same in pieces: another key, a second document, an anchor, a
// text that begins further left than the entries.
func split(data []byte, key string) (pieces []piece) {
	if bytes.ContainsAny(data, "&*\t\r") {
		return nil
	}
	var start []byte // what the line of an entry begins with
	keyed, from, number := false, 0, 0
	for at := 0; at < len(data); number++ {
		end := at + bytes.IndexByte(data[at:], '\n') + 1
		if end == at {
			end = len(data)
		}
		line := bytes.TrimRight(data[at:end], "\n")
		text := bytes.TrimLeft(line, " ")
		switch {
		case len(text) == 0 || text[0] == '#':
		case start == nil && !keyed && string(line) == "---":
		case start == nil && !keyed && isKey(line, key):
			keyed = true
		case start == nil && bytes.HasPrefix(text, []byte("- ")):
			start = line[:len(line)-len(text)+2]
			pieces = append(pieces, piece{line: number})
			from = at
		case start == nil:
			return nil
		case bytes.HasPrefix(line, start):
			if at-from >= pieceSize {
				pieces[len(pieces)-1].data = data[from:at]
				pieces = append(pieces, piece{line: number})
				from = at
			}
		case len(line)-len(text) < len(start)-1:
			return nil
		}
		at = end
	}
	if len(pieces) > 0 {
		pieces[len(pieces)-1].data = data[from:]
	}
	return pieces
}

func isKey(line []byte, key string) bool {
	m := listKey.FindSubmatch(line)
	return m != nil && string(m[1]) == key
}
