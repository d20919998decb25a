// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-os/caisson/internal/durable"
)

// describe returns what the indexes say of packages, as apt-cache show prints it.
// Reading all indexes takes apt longer than the rest of resolving one more package,
// so the last answer is kept: the same indexes say the same of the same packages.
func (s *State) describe(ctx context.Context, debs []Deb) (string, error) {
	releases, err := s.Releases()
	if err != nil {
		return "", err
	}
	question, err := json.Marshal([]any{releases, debs})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(question)
	key := hex.EncodeToString(sum[:]) + "\n"
	kept, err := os.ReadFile(s.path("described"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if n := len(key); len(kept) > n && string(kept[:n]) == key {
		return string(kept[n:]), nil
	}
	// What show finds must not depend on a status that was written before.
	if err := os.WriteFile(s.path("status"), nil, 0o644); err != nil {
		return "", err
	}
	args := []string{"apt-cache", "show", "--"}
	for _, d := range debs {
		args = append(args, d.Name+"="+d.Version)
	}
	out, err := s.run(ctx, args...)
	if err != nil {
		return "", err
	}
	return out, durable.WriteFile(s.path("described"), []byte(key+out), 0o644)
}

// SetSources notes of each package the source package that it was built from, as the
// indexes say. One that no index has any more is left as it is.
func (s *State) SetSources(ctx context.Context, debs []Deb) error {
	if len(debs) == 0 {
		return nil
	}
	// What show finds must not depend on a status that was written before.
	if err := os.WriteFile(s.path("status"), nil, 0o644); err != nil {
		return err
	}
	args := []string{"apt-cache", "show", "--"}
	for _, d := range debs {
		args = append(args, d.Name+"="+d.Version)
	}
	out, err := s.run(ctx, args...)
	if err != nil {
		return fmt.Errorf("ask for the sources of packages: %w", err)
	}
	said := map[string]Stanza{}
	for _, st := range Stanzas(out) {
		said[st.Get("SHA256")] = st
	}
	for i, d := range debs {
		if st, ok := said[d.SHA256]; ok {
			debs[i].Source, debs[i].SourceVersion = source(st)
		}
	}
	return nil
}

// source reads the field Source, see deb-control(5): it is absent where the source has the
// package's name and version, and has the version in brackets where that is another.
func source(st Stanza) (name, version string) {
	name, rest, _ := strings.Cut(st.Get("Source"), " ")
	if name == "" {
		return st.Get("Package"), ""
	}
	version = strings.Trim(rest, " ()")
	if version == st.Get("Version") {
		version = ""
	}
	return name, version
}
