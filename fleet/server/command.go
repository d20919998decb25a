// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
)

// Names are the words by which commands say whose fleet they are about, each ready for a shell.
type Names struct {
	Site     string // its files; "" where the service was given keys alone
	Verifies string // by what is verified, as in --site site.yaml
	Signs    string // the keys that sign, as in --key keys/operator.key
}

// NamesOf are the words for a site in a directory, of its files, or without files for keys that are
// trusted. The private halves sign that lie beside the public keys. Names are relative to where the
// site is, since who pastes a command has a copy of it.
func NamesOf(dir string, files, keys []string) Names {
	below := func(name string) string {
		if to, err := filepath.Rel(dir, name); err == nil && filepath.IsLocal(to) {
			return to
		}
		return name
	}
	var sites, verifies, signs []string
	for _, name := range files {
		word := cli.ShellWord(below(name))
		sites, verifies = append(sites, word), append(verifies, "--site "+word)
	}
	for _, key := range keys {
		if len(files) == 0 {
			verifies = append(verifies, "--trust "+cli.ShellWord(key))
		}
		private := strings.TrimSuffix(below(key), ".pub") + ".key" // as 'caisson keys generate' writes it
		signs = append(signs, "--key "+cli.ShellWord(private))
	}
	return Names{Site: strings.Join(sites, " "), Verifies: strings.Join(verifies, " "), Signs: strings.Join(signs, " ")}
}

// usualNames are those of the quickstart.
var usualNames = Names{"site.yaml", "--site site.yaml", "--key keys/operator.key"}

// names are those that count now: keys change.
func (s *Server) names() Names {
	if s.o.Names == nil {
		return usualNames
	}
	return s.o.Names()
}

// looks is a command that reads what is published.
func (s *Server) looks(verb, more string) string {
	return fmt.Sprintf("caisson %s %s %s%s", verb, s.o.Registry, s.names().Verifies, more)
}

// publishes is a command that signs.
func (s *Server) publishes(verb, more string) string {
	return s.looks(verb, more) + " " + s.names().Signs
}

// at is the address of this service within a command. The guards let no name through
// that is not this service's; how a proxy was reached is not for its headers to say.
func (s *Server) at(req *http.Request) string {
	at := s.o.URL
	switch {
	case at != "":
	case s.o.TLS:
		at = "https://" + req.Host
	default:
		at = "http://" + req.Host
	}
	if strings.Contains(at, "[") {
		at = `"` + at + `"` // some shells look for files
	}
	return at
}

// asReader ends a command that asks this service.
func (s *Server) asReader(req *http.Request) string {
	if s.o.Tokens == nil {
		return " --at " + s.at(req)
	}
	return s.asOperator(req)
}

// asOperator ends a command that asks this service for what takes an operator.
func (s *Server) asOperator(req *http.Request) string {
	return " --at " + s.at(req) + " --token-file token"
}
