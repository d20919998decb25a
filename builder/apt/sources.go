// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// DebianKeyring is the keyring that Debian's own archives are signed with.
const DebianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Debian lists the archives of a Debian base. What d does not say comes from the
// apt sources below hostRoot ("/" but in tests).
func Debian(d spec.Debian, hostRoot string) ([]Archive, error) {
	keyring := cmp.Or(d.Keyring, DebianKeyring)
	if strings.ContainsAny(keyring, " \t\r\n[],") { // they end an option in a list of sources
		return nil, fmt.Errorf("keyring %q: a blank, bracket or comma in its path", keyring)
	}
	if _, err := os.Stat(keyring); err != nil {
		return nil, fmt.Errorf("keyring of suite %s: %w", d.Suite, err)
	}
	mirror, security := d.Mirror, d.Security
	suites := []string{d.Suite}
	if mirror == "" {
		if d.Snapshot != "" {
			return nil, errors.New("layer.base.debian.snapshot needs a mirror that keeps dated snapshots: set " +
				"layer.base.debian.mirror to the directory that holds them")
		}
		var err error
		if mirror, security, err = hostMirror(hostRoot); err != nil {
			return nil, err
		}
		if d.Suite != "sid" && d.Suite != "unstable" && d.Suite != "experimental" {
			suites = append(suites, d.Suite+"-updates")
		} else {
			security = ""
		}
	}
	components := d.Components
	if len(components) == 0 {
		components = []string{"main"}
	}
	dated := d.Snapshot != ""
	at := func(uri string) string {
		uri = strings.TrimRight(uri, "/")
		if dated {
			uri += "/" + d.Snapshot
		}
		return uri
	}
	archives := []Archive{{ID: "debian", URI: at(mirror), Suites: suites, Components: components, Keyring: keyring, Dated: dated}}
	if security != "" {
		archives = append(archives, Archive{ID: "security", URI: at(security), Suites: []string{d.Suite + "-security"},
			Components: components, Keyring: keyring, Dated: dated})
	}
	return archives, nil
}

// Repositories lists a site's own archives, which [Check] accepted. Their keys are
// written to keyDir, by content: apt refuses one distribution of one URL under two
// names of a key. An archive without a key is a mirror that is signed by Debian.
func Repositories(list []spec.Repository, keyDir string) ([]Archive, error) {
	var archives []Archive
	for _, r := range list {
		a := Archive{ID: "repository:" + r.ID, URI: r.URL, Components: r.Components, Keyring: DebianKeyring}
		for _, dist := range r.Distributions {
			a.Suites = append(a.Suites, dist)
			for _, sub := range r.Subrepos {
				a.Suites = append(a.Suites, dist+"-"+sub)
			}
		}
		if r.Key != "" {
			a.Keyring = filepath.Join(keyDir, fmt.Sprintf("%.8x.asc", sha256.Sum256([]byte(strings.TrimSpace(r.Key)))))
			if err := os.MkdirAll(keyDir, 0o755); err != nil {
				return nil, err
			}
			if err := os.WriteFile(a.Keyring, []byte(r.Key), 0o644); err != nil {
				return nil, err
			}
		}
		archives = append(archives, a)
	}
	return archives, nil
}

// hostMirror finds the host's own mirror and security archive.
func hostMirror(hostRoot string) (mirror, security string, err error) {
	id, codename, err := osRelease(hostRoot)
	if err != nil {
		return "", "", err
	}
	if id != "debian" {
		return "", "", fmt.Errorf("the build host is %q, not Debian, so its apt sources name no Debian mirror: set layer.base.debian.mirror", id)
	}
	entries, err := hostEntries(hostRoot)
	if err != nil {
		return "", "", err
	}
	for _, e := range entries {
		for _, suite := range e.suites {
			switch {
			case suite == codename && mirror == "":
				mirror = e.uri
			case suite == codename+"-security" && security == "":
				security = e.uri
			}
		}
	}
	if mirror == "" {
		return "", "", fmt.Errorf("the host's apt sources name no mirror for %q: set layer.base.debian.mirror", codename)
	}
	return mirror, security, nil
}

func osRelease(hostRoot string) (id, codename string, err error) {
	data, err := os.ReadFile(filepath.Join(hostRoot, "etc/os-release"))
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			id = value
		case "VERSION_CODENAME":
			codename = value
		}
	}
	return id, codename, nil
}

// entry is one archive of the host, in either format of sources.list(5).
type entry struct {
	uri    string
	suites []string
}

func hostEntries(hostRoot string) ([]entry, error) {
	etc := filepath.Join(hostRoot, "etc/apt")
	files, _ := filepath.Glob(filepath.Join(etc, "sources.list.d/*")) // the pattern is valid
	var entries []entry
	// Debian's installer and images write the first two; any file may have a third party's
	// suite of the same name.
	own := []string{filepath.Join(etc, "sources.list.d/debian.sources"), filepath.Join(etc, "sources.list")}
	for _, file := range append(own, slices.DeleteFunc(files, func(name string) bool { return name == own[0] })...) {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch filepath.Ext(file) {
		case ".list":
			entries = append(entries, oneLine(string(data))...)
		case ".sources":
			entries = append(entries, deb822(string(data))...)
		}
	}
	return entries, nil
}

func oneLine(text string) []entry {
	var entries []entry
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if open := strings.Index(line, "["); open >= 0 {
			if end := strings.Index(line, "]"); end > open {
				line = line[:open] + line[end+1:]
			}
		}
		f := strings.Fields(line)
		if len(f) >= 3 && f[0] == "deb" {
			entries = append(entries, entry{uri: f[1], suites: f[2:3]})
		}
	}
	return entries
}

func deb822(text string) []entry {
	var entries []entry
	for _, p := range Stanzas(text) {
		if strings.EqualFold(p.Get("Enabled"), "no") || !strings.Contains(" "+p.Get("Types")+" ", " deb ") {
			continue
		}
		for _, uri := range strings.Fields(p.Get("URIs")) {
			entries = append(entries, entry{uri: uri, suites: strings.Fields(p.Get("Suites"))})
		}
	}
	return entries
}

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
	out, err := s.show(ctx, debs)
	if err != nil {
		return "", err
	}
	return out, durable.WriteFile(s.path("described"), []byte(key+out), 0o644)
}

// show asks what indexes say of packages. That must not depend on a status that was written before.
func (s *State) show(ctx context.Context, debs []Deb) (string, error) {
	if err := os.WriteFile(s.path("status"), nil, 0o644); err != nil {
		return "", err
	}
	names := plain.Each(debs, func(d Deb) string { return d.Name + "=" + d.Version })
	return s.run(ctx, append([]string{"apt-cache", "show", "--"}, names...)...)
}

// SetSources notes of each package the source package that it was built from, as the
// indexes say. One that no index has any more is left as it is.
func (s *State) SetSources(ctx context.Context, debs []Deb) error {
	if len(debs) == 0 {
		return nil
	}
	out, err := s.show(ctx, debs)
	if err != nil {
		return fmt.Errorf("ask for the sources of packages: %w", err)
	}
	said := plain.Map(Stanzas(out), func(st Stanza) (string, Stanza) { return st.Get("SHA256"), st })
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

// Check refuses archives that could not stand in a list of sources, naming every
// problem; base is nil where the base is not Debian's. It asks nobody.
func Check(base *spec.Debian, own []spec.Repository) error {
	var problems []error
	if base != nil {
		for _, uri := range []string{base.Mirror, base.Security} {
			if err := rules.SourceURL(uri); uri != "" && err != nil {
				problems = append(problems, fmt.Errorf("layer.base.debian: %w", err))
			}
		}
		problems = append(problems, words("layer.base.debian", append([]string{base.Suite}, base.Components...)))
		if base.Snapshot != "" {
			problems = append(problems, words("layer.base.debian.snapshot", []string{base.Snapshot}))
		}
	}
	for _, r := range own {
		for _, err := range []error{rules.ID(r.ID), rules.SourceURL(r.URL)} {
			if err != nil {
				problems = append(problems, fmt.Errorf("repository %q: %w", r.ID, err))
			}
		}
		if len(r.Distributions) == 0 {
			problems = append(problems, fmt.Errorf("repository %s: no distributions", r.ID))
		}
		for _, list := range [][]string{r.Components, r.Subrepos} {
			problems = append(problems, words("repository "+r.ID, list))
		}
		for _, dist := range r.Distributions {
			if err := rules.Suite(dist); err != nil {
				problems = append(problems, fmt.Errorf("repository %s: %w", r.ID, err))
			}
		}
		if err := rules.Sources(r); err != nil {
			problems = append(problems, fmt.Errorf("repository %s: %w", r.ID, err))
		}
		if r.Key != "" && !strings.Contains(r.Key, "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
			problems = append(problems, fmt.Errorf("repository %s: the key is not an armoured OpenPGP public key", r.ID))
		}
	}
	return errors.Join(append(problems, sameKeys(own)...)...)
}

// sameKeys refuses one distribution of one URL with two keys: apt takes one.
func sameKeys(own []spec.Repository) (problems []error) {
	first := map[string]spec.Repository{}
	for _, r := range own {
		for _, dist := range r.Distributions {
			at := strings.TrimRight(r.URL, "/") + " " + dist
			if other, twice := first[at]; twice && strings.TrimSpace(other.Key) != strings.TrimSpace(r.Key) {
				problems = append(problems, fmt.Errorf("repositories %s and %s: distribution %s of %s has two keys; give one "+
					"entry all components", other.ID, r.ID, dist, r.URL))
			} else if !twice {
				first[at] = r
			}
		}
	}
	return problems
}

// words checks suites or components.
func words(whose string, list []string) error {
	for _, word := range list {
		if err := rules.SourceWord(word); err != nil {
			return fmt.Errorf("%s: %w", whose, err)
		}
	}
	return nil
}
