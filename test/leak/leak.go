// SPDX-License-Identifier: Apache-2.0

// Package leak looks for secrets where none may be, as they stand there: as they are, in hex, in
// base64 whatever stands before them, in a URL, in JSON. Tests that know the values import it.
package leak

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Where a core stands in a value of [Value].
const (
	before = `<"p&`
	after  = `+/ ä%`
	core   = 24 // letters and digits
)

// Value returns a secret that no two tests have, and that each way of spelling changes.
func Value() string {
	random := make([]byte, core/2)
	rand.Read(random)
	return before + hex.EncodeToString(random) + after
}

// Spellings are the ways in which a value may stand somewhere, by what they are called. A value
// that is not one of [Value] is taken whole.
func Spellings(value string) map[string]string {
	part := value
	if strings.HasPrefix(value, before) && len(value) == len(before)+core+len(after) {
		part = value[len(before) : len(before)+core] // it stands so in most of the others, too
	}
	quoted, _ := json.Marshal(value) // a text always marshals
	backwards := []byte(part)
	slices.Reverse(backwards)
	all := map[string]string{"as it is": part, "whole": value, "in hex": hex.EncodeToString([]byte(part)), "in capital hex": strings.ToUpper(hex.EncodeToString([]byte(part))),
		"in a URL": url.QueryEscape(value), "in JSON": strings.Trim(string(quoted), `"`), "backwards": string(backwards)}
	for pad := range 3 { // what stands before it moves the digits of base64
		text := base64.RawStdEncoding.EncodeToString([]byte("xxx"[:pad] + part))
		text = text[(pad*8+5)/6 : len(text)-2]
		all[fmt.Sprint("in base64, moved by ", pad)] = text
		all[fmt.Sprint("in base64 of URLs, moved by ", pad)] = strings.NewReplacer("+", "-", "/", "_").Replace(text)
	}
	return all
}

// block is read at a time.
const block = 1 << 20

// Find returns where values stand in what is read, one line each; secrets are values by name.
func Find(r io.Reader, secrets map[string]string) (found []string, err error) {
	type spelling struct{ name, how, text string }
	var all []spelling
	longest := 0
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		ways := Spellings(secrets[name])
		for _, how := range slices.Sorted(maps.Keys(ways)) {
			all = append(all, spelling{name, how, ways[how]})
			longest = max(longest, len(ways[how]))
		}
	}
	data, kept, at := make([]byte, longest+block), 0, int64(0)
	nothing := make([]byte, len(data))
	for {
		n, err := io.ReadFull(r, data[kept:])
		window := data[:kept+n]
		if !bytes.Equal(window, nothing[:len(window)]) { // most of a disk is empty
			for _, s := range all {
				if i := bytes.Index(window, []byte(s.text)); i >= 0 {
					found = append(found, fmt.Sprintf("secret %s %s at %d, after %q", s.name, s.how, at-int64(kept)+int64(i), window[max(0, i-80):i]))
				}
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		kept = copy(data, window[len(window)-longest:])
	}
}
