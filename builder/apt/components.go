// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
)

// checkComponents refuses a component that an archive's Release file does not
// list. apt only warns, and the packages of a misspelt one would be missing. An
// archive without a Release file, or one that lists none, has nothing to say.
func (s *State) checkComponents() error {
	for _, a := range s.archives {
		for _, suite := range a.Suites {
			if strings.HasSuffix(suite, "/") {
				continue // a flat archive has no components
			}
			has, err := s.components(strings.TrimRight(a.URI, "/") + "/dists/" + suite)
			if err != nil {
				return err
			}
			for _, c := range a.Components {
				if len(has) > 0 && !slices.ContainsFunc(has, func(h string) bool { return h == c || strings.HasSuffix(h, "/"+c) }) {
					return cli.WithHint(fmt.Errorf("suite %s of %s has no component %q", suite, a.URI, c), "it has "+strings.Join(has, ", "))
				}
			}
		}
	}
	return nil
}

// components are those that the suite at uri lists.
func (s *State) components(uri string) ([]string, error) {
	for _, kind := range []string{"InRelease", "Release"} {
		data, err := os.ReadFile(s.path("lists/" + listName(uri+"/"+kind)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			if list, ok := strings.CutPrefix(line, "Components:"); ok {
				return strings.Fields(list), nil
			}
		}
	}
	return nil, nil
}

// listName is the file in which apt keeps what it got from uri.
func listName(uri string) string {
	_, name, _ := strings.Cut(uri, ":")
	name = strings.TrimPrefix(name, "//")
	if host, rest, ok := strings.Cut(name, "/"); ok {
		name = host[strings.LastIndex(host, "@")+1:] + "/" + rest // without user and password
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c == '/':
			b.WriteByte('_')
		case c <= ' ' || c >= 0x7f || strings.IndexByte("\\|{}[]<>\"^~_=!@#$%&*", c) >= 0:
			fmt.Fprintf(&b, "%%%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
