// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
)

// Folder is an open state directory.
type Folder struct {
	dir    string
	beside string // in memory: what the disk does not take, see SaveVerdict

	alone bool   // no other process writes, see Alone
	known *State // what Load has read, or Save written; nil where that is to be read again
}

// limit caps what is read back: nothing that is written here comes near it.
const limit = 16 << 20

// skeleton are the directories that a state directory always has.
var skeleton = []string{"", "overlays", "journal", "exec", "identity", paths.Credentials, paths.Reports}

// Open makes the directory's skeleton where it is missing, closes it to everybody
// but root (a disk that others had in hand may have links or foreign owners), and
// removes what a process left that was killed while it wrote. One process at a
// time does that; [View] is for those that only look.
func Open(dir string) (*Folder, error) {
	for _, sub := range skeleton {
		if err := ownfiles.Folder(filepath.Join(dir, sub)); err != nil {
			return nil, fmt.Errorf("open state: %w", err)
		}
	}
	for _, pattern := range []string{".*.json*.*", "." + reserveFile + ".*", "overlays/.*.json.*",
		"identity/.secrets.*key.*", keysDir + "/.*.json.*"} {
		left, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is valid
		for _, name := range left {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("open state: %w", err)
			}
		}
	}
	return &Folder{dir: dir}, nil
}

// View is the directory for looking only: it makes and changes nothing.
func View(dir string) *Folder { return &Folder{dir: dir} }

// Path is a path below the directory.
func (f *Folder) Path(elem ...string) string {
	return filepath.Join(append([]string{f.dir}, elem...)...)
}

// SaveOverlay keeps an accepted candidate, encoded by trust.Candidate.Save, under
// the digest of its overlay.
func (f *Folder) SaveOverlay(digest string, saved []byte) error {
	return keep("overlay", f.overlayPath(digest), saved)
}

// LoadOverlay returns what SaveOverlay kept. The caller verifies it again.
func (f *Folder) LoadOverlay(digest string) ([]byte, error) {
	return kept("overlay", f.overlayPath(digest))
}

// Overlays returns the digests of the overlays that are kept.
func (f *Folder) Overlays() ([]string, error) {
	entries, err := os.ReadDir(f.Path("overlays"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("kept overlays: %w", err)
	}
	var digests []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok && f.overlayPath(name) == f.Path("overlays", e.Name()) {
			digests = append(digests, digest.FromHex(name))
		}
	}
	return digests, nil
}

// CollectOverlays deletes the overlays that neither s nor also names.
func (f *Folder) CollectOverlays(s *State, also ...string) error {
	keep := plain.Map(also, func(digest string) (string, bool) { return filepath.Base(f.overlayPath(digest)), true })
	if s.Trial.Pending() {
		keep[filepath.Base(f.overlayPath(s.Trial.Generation.Overlay))] = true
	}
	for _, g := range append(s.Generations(), pointers(s.Earlier)...) {
		keep[filepath.Base(f.overlayPath(g.Overlay))] = true
	}
	entries, err := os.ReadDir(f.Path("overlays"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			if err := os.Remove(f.Path("overlays", e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Folder) overlayPath(of string) string {
	hexes := digest.Hex(of)
	if strings.Trim(hexes, "0123456789abcdef") != "" || hexes == "" {
		hexes = "invalid"
	}
	return f.Path("overlays", hexes+".json")
}

const fleetFile = "fleet-current.json"

// SaveFleet keeps an accepted fleet:current with its signatures: where state.json
// is lost, it still says what must not run.
func (f *Folder) SaveFleet(saved []byte) error {
	return keep("fleet:current", f.Path(fleetFile), saved)
}

// LoadFleet returns what SaveFleet kept. The caller verifies it again.
func (f *Folder) LoadFleet() ([]byte, error) { return kept("fleet:current", f.Path(fleetFile)) }

// aside is where the memory of another fleet goes, for a person to look at.
const aside = "other-fleet"

// SetAside moves what is remembered about a fleet out of the way, and returns
// where it is. The journal and the history of scripts stay: they are about this
// disk and this host, whichever fleet commands it.
func (f *Folder) SetAside() (string, error) {
	f.known = nil
	to := f.Path(aside)
	if err := os.RemoveAll(to); err != nil {
		return "", fmt.Errorf("set the state aside: %w", err)
	}
	if err := ownfiles.Folder(to); err != nil {
		return "", fmt.Errorf("set the state aside: %w", err)
	}
	for _, name := range append([]string{fleetFile, "overlays", keysDir, "identity", paths.Reports}, copies...) {
		if err := os.Rename(f.Path(name), filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("set the state aside: %w", err)
		}
	}
	if err := durable.SyncDir(f.dir); err != nil {
		return "", fmt.Errorf("set the state aside: %w", err)
	}
	_, err := Open(f.dir)
	return to, err
}

// write replaces a file that says something else. An unchanged node writes
// nothing, so that it does not wear its disk out, nor need room on it.
func write(name string, data []byte) error {
	if old, err := ownfiles.ReadFile(name, limit); err == nil && bytes.Equal(old, data) {
		return durable.SyncDir(filepath.Dir(name)) // its writer may have been killed before this
	}
	return durable.WriteFile(name, data, 0o600)
}

// keep writes something that was accepted.
func keep(what, name string, data []byte) error {
	return fault.In(write(name, data), "keep %s", what)
}

// kept reads something that was accepted.
func kept(what, name string) ([]byte, error) {
	data, err := ownfiles.ReadFile(name, limit)
	return data, fault.In(err, "kept %s", what)
}

// keysDir holds the versions of fleet:keys that this node has accepted, each in a file of
// its own: NUMBER.json. The greatest number is a floor, whatever is in the file.
const keysDir = "keys"

// SaveKeys keeps an accepted version of fleet:keys, encoded by trust.Candidate.SaveKeys.
func (f *Folder) SaveKeys(version uint64, saved []byte) error {
	if err := ownfiles.Folder(f.Path(keysDir)); err != nil {
		return fmt.Errorf("keep keys: %w", err)
	}
	return keep("keys", f.keysPath(version), saved)
}

// LoadKeys returns what SaveKeys kept. The caller verifies it again.
func (f *Folder) LoadKeys(version uint64) ([]byte, error) { return kept("keys", f.keysPath(version)) }

// KeysVersions returns the versions of fleet:keys that are kept, in order.
func (f *Folder) KeysVersions() ([]uint64, error) {
	entries, err := os.ReadDir(f.Path(keysDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("kept keys: %w", err)
	}
	var versions []uint64
	for _, e := range entries {
		name, _ := strings.CutSuffix(e.Name(), ".json")
		if n, err := strconv.ParseUint(name, 10, 64); err == nil && f.keysPath(n) == f.Path(keysDir, e.Name()) {
			versions = append(versions, n)
		}
	}
	slices.Sort(versions)
	return versions, nil
}

func (f *Folder) keysPath(version uint64) string {
	return f.Path(keysDir, strconv.FormatUint(version, 10)+".json")
}

// servicesFile is below the folder.
const servicesFile = "services.json"

// maxServices caps the file, in bytes.
const maxServices = 4 << 20

// Service holds a node's record of a service. It names images that signed overlays
// have; by itself it proves nothing.
type Service struct {
	Images []string `json:"images,omitempty"` // digests that it was at, the newest first
	Held   string   `json:"held,omitempty"`   // the one that an operator keeps it at
	Reason string   `json:"reason,omitempty"` // why
	Since  int64    `json:"since,omitempty"`  // seconds since 1970
}

// Services returns what is remembered of services, by name. With an error there is an
// empty map all the same.
func (f *Folder) Services() (map[string]Service, error) {
	out := map[string]Service{}
	data, err := ownfiles.ReadFile(f.Path(servicesFile), maxServices)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return map[string]Service{}, fmt.Errorf("read %s: %w", f.Path(servicesFile), err)
	}
	return out, nil
}

// SaveServices replaces what is remembered.
func (f *Folder) SaveServices(all map[string]Service) error {
	data, _ := json.Marshal(all) // texts and numbers marshal
	return durable.WriteFile(f.Path(servicesFile), append(data, '\n'), 0o600)
}
