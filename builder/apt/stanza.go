// SPDX-License-Identifier: Apache-2.0

package apt

import "strings"

// Stanza is one paragraph of a control file, see deb822(5).
type Stanza struct {
	Text   string
	fields map[string]string
}

// Get returns a field, folded lines joined by blanks, or "".
func (s Stanza) Get(field string) string { return s.fields[strings.ToLower(field)] }

// Stanzas splits control-file text. Comments are skipped.
func Stanzas(text string) []Stanza {
	var all []Stanza
	var b strings.Builder
	fields := map[string]string{}
	last := ""
	flush := func() {
		if len(fields) > 0 {
			all = append(all, Stanza{Text: b.String(), fields: fields})
		}
		b.Reset()
		fields, last = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.TrimSpace(line) == "":
			flush()
			continue
		case line[0] == '#':
			continue
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += " " + strings.TrimSpace(line)
			}
		default:
			key, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(key)
			fields[last] = strings.TrimSpace(value)
		}
		b.WriteString(line + "\n")
	}
	flush()
	return all
}
