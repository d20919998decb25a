// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"cmp"
	"slices"
	"strings"
)

// challenge is a way to log in that a registry offers.
type challenge struct {
	scheme string            // "basic" or "bearer"
	params map[string]string // by names in lower case
}

// maxChallenges caps how many an answer may have us try.
const maxChallenges = 8

// parseChallenges reads the values of WWW-Authenticate, each of which may hold several
// challenges (RFC 9110, 11.6.1), and returns those of schemes that are known here, bearer
// first. What is not in the form is passed over.
func parseChallenges(values []string) []challenge {
	var list []challenge
	for _, rest := range values {
		var params map[string]string // of the challenge that is being read
		begins := true               // at the start, and after a comma
		for rest != "" {
			word, after := cutToken(rest)
			blank := strings.TrimLeft(after, " \t")
			switch {
			case word == "": // blanks, a comma, or what belongs nowhere
				begins, rest = begins || rest[0] == ',', rest[1:]
				continue
			case strings.HasPrefix(blank, "="):
				var value string
				value, rest = cutValue(strings.TrimLeft(blank[1:], " \t"))
				if params != nil {
					params[strings.ToLower(word)] = value
				}
			case begins:
				c := challenge{strings.ToLower(word), map[string]string{}}
				params, rest = c.params, after
				if (c.scheme == "basic" || c.scheme == "bearer") && len(list) < maxChallenges {
					list = append(list, c)
				}
			default: // credentials of another scheme, in one word
				rest = after
			}
			begins = false
		}
	}
	slices.SortStableFunc(list, func(a, b challenge) int { return -cmp.Compare(a.scheme, b.scheme) })
	return list
}

// cutToken returns what of s comes before a delimiter.
func cutToken(s string) (token, rest string) {
	end := strings.IndexAny(s, " \t,=\"")
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:]
}

// cutValue cuts a parameter's value, as it is or quoted, from what comes after it.
func cutValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, " \t,")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:]
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String(), ""
}
