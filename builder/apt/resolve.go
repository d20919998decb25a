// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
)

// Deb is one exact package file. Archive and Path say where it was found; the
// sha256 alone says what it is.
type Deb struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
	SHA256  string `json:"sha256"`
	Size    int64  `json:"size"`
	Archive string `json:"archive"` // ID of the archive
	Path    string `json:"path"`    // below the archive's URI

	// Source is the source package that it was built from, and SourceVersion its version where that
	// is another than the package's. Locks of before 0.10.0 lack them.
	Source        string `json:"source,omitempty"`
	SourceVersion string `json:"sourceVersion,omitempty"`
}

// Request holds the state that apt-get is asked to reach.
type Request struct {
	Install        []string // name, name=version, or a pattern, see apt-patterns(7)
	Upgrade        bool     // everything to its candidate
	AllowDowngrade bool
	Recommends     bool
	Hold           []string
	Never          []string // must not be chosen, not even as a dependency
	Status         string   // dpkg's own record of what is there, instead of Installed
	Installed      []Deb    // already there
	From           *State   // whose indexes describe Installed; nil is the same state
	Manual         []string // of those, asked for by name
}

// Resolve names the packages to fetch for a request, without fetching them.
func (s *State) Resolve(ctx context.Context, r Request) ([]Deb, error) {
	if err := s.writeStatus(ctx, r); err != nil {
		return nil, err
	}
	var never strings.Builder
	for _, name := range r.Never {
		fmt.Fprintf(&never, "Package: %s\nPin: version *\nPin-Priority: -1\n\n", name)
	}
	if err := os.WriteFile(s.path("etc/preferences"), []byte(never.String()), 0o644); err != nil {
		return nil, err
	}
	args := []string{"apt-get", "-q", "-y", "--print-uris", "--no-remove"}
	if r.AllowDowngrade {
		args = append(args, "--allow-downgrades")
	}
	if r.Recommends {
		args = append(args, "-o", "APT::Install-Recommends=true")
	}
	verb := "install"
	if r.Upgrade {
		verb = "dist-upgrade"
	}
	args = append(append(args, "-o", "APT::Get::AllowUnauthenticated=false", verb, "--"), r.Install...)
	out, err := s.run(ctx, args...)
	if err != nil {
		if text := err.Error(); strings.Contains(text, "Unable to locate package") ||
			strings.Contains(text, "was not found") || strings.Contains(text, "has no installation candidate") {
			if why := s.unknown(ctx, r.Install); why != nil {
				return nil, why
			}
		}
		return nil, fmt.Errorf("resolve packages: %w", err)
	}
	var debs []Deb
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "'") {
			d, err := s.parseURI(strings.TrimSpace(line))
			if err != nil {
				return nil, err
			}
			debs = append(debs, d)
		}
	}
	return debs, nil
}

// parseURI reads one line of apt-get --print-uris:
// 'URI' file-name size SHA256:hex.
func (s *State) parseURI(line string) (Deb, error) {
	f := strings.Fields(line)
	if len(f) != 4 {
		return Deb{}, fmt.Errorf("apt-get --print-uris: unexpected line %q", line)
	}
	raw := strings.Trim(f[0], "'")
	hash, ok := strings.CutPrefix(f[3], "SHA256:")
	size, err := strconv.ParseInt(f[2], 10, 64)
	if !ok || len(hash) != 64 || err != nil {
		return Deb{}, fmt.Errorf("apt-get --print-uris: no sha256 or size in %q", line)
	}
	for _, a := range s.archives {
		rest, ok := strings.CutPrefix(raw, strings.TrimRight(a.URI, "/")+"/")
		if !ok {
			continue
		}
		rest, err := url.PathUnescape(rest)
		if err != nil {
			return Deb{}, fmt.Errorf("apt-get --print-uris: %q: %w", raw, err)
		}
		parts := strings.Split(strings.TrimSuffix(path.Base(f[1]), ".deb"), "_")
		if len(parts) != 3 {
			return Deb{}, fmt.Errorf("package file %q: no name_version_arch", f[1])
		}
		version, err := url.PathUnescape(parts[1])
		if err != nil {
			return Deb{}, fmt.Errorf("package file %q: %w", f[1], err)
		}
		return Deb{Name: parts[0], Version: version, Arch: parts[2], SHA256: hash, Size: size, Archive: a.ID, Path: rest}, nil
	}
	return Deb{}, fmt.Errorf("package %s comes from no archive of this build", raw)
}

// writeStatus tells apt what is installed already, as dpkg's status file would.
func (s *State) writeStatus(ctx context.Context, r Request) error {
	var status, extended strings.Builder
	status.WriteString(r.Status)
	if len(r.Installed) > 0 {
		from := s
		if r.From != nil {
			from = r.From
		}
		want := plain.Map(r.Installed, func(d Deb) (string, Deb) { return d.SHA256, d })
		out, err := from.describe(ctx, r.Installed)
		if err != nil {
			return fmt.Errorf("describe the installed packages: %w", err)
		}
		for _, st := range Stanzas(out) {
			d, ok := want[st.Get("SHA256")]
			if !ok {
				continue
			}
			delete(want, d.SHA256)
			selection := "install"
			if slices.Contains(r.Hold, d.Name) {
				selection = "hold"
			}
			fmt.Fprintf(&status, "%sStatus: %s ok installed\n\n", st.Text, selection)
		}
		for _, d := range want {
			return fmt.Errorf("package %s %s is in no index", d.Name, d.Version)
		}
		for _, d := range r.Installed {
			if !slices.Contains(r.Manual, d.Name) {
				fmt.Fprintf(&extended, "Package: %s\nArchitecture: %s\nAuto-Installed: 1\n\n", d.Name, s.arch)
			}
		}
	}
	if err := os.WriteFile(s.path("extended_states"), []byte(extended.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(s.path("status"), []byte(status.String()), 0o644)
}
