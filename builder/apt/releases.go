// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// Release is one index that packages were resolved against.
type Release struct {
	Suite  string `json:"suite"`
	Origin string `json:"origin,omitempty"`
	Date   string `json:"date"` // RFC 3339
	SHA256 string `json:"sha256"`

	Archive string `json:"archive,omitempty"` // ID of the archive that signed it; locks of 0.9.0 lack it
}

// Releases describes the indexes of the last Update, sorted.
func (s *State) Releases() ([]Release, error) {
	files, err := filepath.Glob(s.path("lists/*Release"))
	if err != nil {
		return nil, err
	}
	var all []Release
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r, err := parseRelease(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		r.Archive = s.archiveOf(filepath.Base(file)).ID
		all = append(all, r)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Suite+all[i].SHA256 < all[j].Suite+all[j].SHA256 })
	return all, nil
}

// archiveOf returns the archive whose index a file of apt's lists is, an empty one where its name does not say.
func (s *State) archiveOf(list string) Archive {
	for _, a := range s.archives {
		for _, suite := range a.Suites {
			at := "dists/" + suite + "/"
			if strings.HasSuffix(suite, "/") {
				at = strings.TrimPrefix(suite, "/") // flat
			}
			if strings.HasPrefix(list, listName(strings.TrimRight(a.URI, "/")+"/"+at)) {
				return a
			}
		}
	}
	return Archive{}
}

func parseRelease(data []byte) (Release, error) {
	text := string(data)
	if rest, ok := strings.CutPrefix(text, "-----BEGIN PGP SIGNED MESSAGE-----"); ok {
		if _, body, ok := strings.Cut(rest, "\n\n"); ok {
			text, _, _ = strings.Cut(body, "-----BEGIN PGP SIGNATURE-----")
		}
	}
	stanzas := Stanzas(text)
	if len(stanzas) == 0 {
		return Release{}, fmt.Errorf("no fields")
	}
	st := stanzas[0]
	suite := st.Get("Codename")
	if suite == "" {
		suite = st.Get("Suite")
	}
	date, err := parseDate(st.Get("Date"))
	if err != nil {
		return Release{}, err
	}
	sum := sha256.Sum256(data)
	return Release{Suite: suite, Origin: st.Get("Origin"), Date: date.UTC().Format(time.RFC3339), SHA256: hex.EncodeToString(sum[:])}, nil
}

func parseDate(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC1123, time.RFC1123Z, "Mon, _2 Jan 2006 15:04:05 MST"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("date %q is not that of a Release file", text)
}

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
