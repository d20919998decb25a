// SPDX-License-Identifier: Apache-2.0

// Package unknown keeps a list of machines that asked a registry for an overlay and
// got none: new ones, replaced ones, those whose match in the site is wrong.
//
// It knows only what a machine asked for, tags of node, and from where: anybody can
// ask for anything, so the list is short, a help for people, and no program relies on it.
// What keeps it is a file beside the layout that is served. cmd/caisson keeps
// it, and fleet/server shows it.
package unknown

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/httpserver"
)

// Machine is one that is not known.
type Machine struct {
	From  string    `json:"from"` // address
	Agent string    `json:"agent,omitempty"`
	Names []string  `json:"names"`
	MACs  []string  `json:"macs"`
	UUIDs []string  `json:"uuids"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Limits of the list: strangers fill it.
const (
	maxMachines = 256
	maxNames    = 8 // of one kind, of one machine
	maxFile     = 1 << 20
)

// program begins what the program caisson calls itself: who looks at a fleet is not a machine of it, and
// a relay asks for all that are behind it.
const program = "caisson/"

// settle is how long after a question the machine may still ask by another of its
// names and be known by that.
const settle = 3 * time.Second

// List is the list of a server. It may be used by several goroutines.
type List struct {
	file   string
	found  func(Machine) // gets each machine once
	settle time.Duration

	mu      sync.Mutex
	written time.Time
	asking  map[string]*Machine // by address and agent
	unknown map[string]*Machine // likewise; in the file
}

// Open opens the list in a file, which need not be there yet. Found is called once for
// each machine that turns out to be unknown.
func Open(file string, found func(Machine)) (*List, error) {
	l := &List{file: file, found: found, settle: settle, asking: map[string]*Machine{}, unknown: map[string]*Machine{}}
	list, err := Read(file)
	for _, m := range list {
		l.unknown[m.key()] = &m
	}
	return l, err
}

// Make writes the list in a file again, or an empty one, so that a place that cannot have it is known
// before anybody asks.
func Make(file string) error {
	l, err := Open(file, nil)
	if err != nil {
		return err
	}
	return l.write()
}

// Name returns the file of the list of machines that asked for the layout in dir.
func Name(dir string) string { return filepath.Join(dir, ".unknown.json") }

// Read returns the machines in a file, the last ones first; none without the file.
func Read(file string) ([]Machine, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	var list []Machine
	var data []byte
	if err == nil {
		data, err = os.ReadFile(file)
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("unknown machines: %s: %w", file, err)
	}
	sort(list)
	return Clean(list), nil
}

var macForm = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)

// Clean keeps of machines what a list takes note of, where it comes from elsewhere: words of it go into
// rows of a site, and into commands.
func Clean(list []Machine) []Machine {
	keep := func(names []string, form *regexp.Regexp) []string {
		kept := []string{}
		for _, name := range names[:min(len(names), maxNames)] {
			if form.MatchString(name) {
				kept = append(kept, name)
			}
		}
		return kept
	}
	list = slices.Clone(list[:min(len(list), maxMachines)])
	for i := range list {
		m := &list[i]
		m.MACs, m.UUIDs, m.Names = keep(m.MACs, macForm), keep(m.UUIDs, uuidForm), keep(m.Names, tagForm)
	}
	return list
}

func sort(list []Machine) {
	slices.SortFunc(list, func(a, b Machine) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.key(), b.key())) })
}

func (m *Machine) key() string { return m.From + " " + m.Agent }

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

const tag = `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}`

var (
	tagForm = regexp.MustCompile(`^` + tag + `$`)
	nodeTag = regexp.MustCompile(`/node/manifests/(` + tag + `)$`)
)

// Answered takes note of a request and its answer. The agent is what the machine calls
// itself, the path what it asked for.
func (l *List) Answered(from, agent, path string, found bool, at time.Time) error {
	part := nodeTag.FindStringSubmatch(path)
	if part == nil || strings.HasPrefix(agent, program) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &Machine{From: from, Agent: agent, First: at, Names: []string{}, MACs: []string{}, UUIDs: []string{}}
	key := m.key()
	if found {
		delete(l.asking, key)
		if l.unknown[key] == nil {
			return nil
		}
		delete(l.unknown, key)
		return l.write()
	}
	switch {
	case l.unknown[key] != nil:
		m = l.unknown[key]
	case l.asking[key] != nil:
		m = l.asking[key]
	default:
		if len(l.asking) >= maxMachines {
			delete(l.asking, crowded(l.asking))
		}
		l.asking[key] = m
		time.AfterFunc(l.settle, func() { l.settled(key) })
	}
	m.Last = at
	if news := m.note(part[1]); l.unknown[key] == nil || !news && at.Sub(l.written) < time.Minute {
		return nil
	}
	return l.write()
}

// note adds a tag that was asked for and reports whether it is new.
func (m *Machine) note(tag string) bool {
	add := func(list *[]string, name string) bool {
		if slices.Contains(*list, name) || len(*list) >= maxNames {
			return false
		}
		*list = append(*list, name)
		return true
	}
	if mac, ok := strings.CutPrefix(tag, "mac-"); ok {
		if raw, err := hex.DecodeString(mac); err == nil && len(raw) == 6 {
			return add(&m.MACs, fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", raw[0], raw[1], raw[2], raw[3], raw[4], raw[5]))
		}
	}
	if uuid, ok := strings.CutPrefix(tag, "uuid-"); ok && uuidForm.MatchString(uuid) {
		return add(&m.UUIDs, uuid)
	}
	return add(&m.Names, tag)
}

// settled puts a machine that nothing was found for on the list.
func (l *List) settled(key string) {
	l.mu.Lock()
	m := l.asking[key]
	delete(l.asking, key)
	if m != nil {
		l.unknown[key] = m
		_ = l.write() // the next one is written with it; found says it all the same
	}
	l.mu.Unlock()
	if m != nil {
		l.found(*m)
	}
}

// share is by what a stranger is counted: an IPv4 address, or a network of an IPv6 one, all of whose
// addresses may be one machine's, or one customer's.
func share(from string, bits int) string {
	a, err := netip.ParseAddr(from)
	if err != nil || a.Unmap().Is4() {
		return from
	}
	network, err := a.Prefix(bits)
	if err != nil {
		return from
	}
	return network.String()
}

// crowded returns whom a full list leaves out: of the /48 with the most machines, and there of the /64
// with the most, the one that asked the longest ago. Who asks under many names pushes out nobody else.
func crowded(list map[string]*Machine) (key string) {
	sizes := []int{48, 64}
	shares := []map[string]int{{}, {}}
	for _, m := range list {
		for i, bits := range sizes {
			shares[i][share(m.From, bits)]++
		}
	}
	var out *Machine
	more := func(at string, m *Machine) int {
		for i, bits := range sizes {
			if c := cmp.Compare(shares[i][share(m.From, bits)], shares[i][share(out.From, bits)]); c != 0 {
				return c
			}
		}
		return cmp.Or(out.Last.Compare(m.Last), cmp.Compare(at, key))
	}
	for at, m := range list {
		if out == nil || more(at, m) > 0 {
			key, out = at, m
		}
	}
	return key
}

// write keeps the machines that asked last, as far as there is room.
func (l *List) write() error {
	l.written = time.Now()
	for len(l.unknown) > maxMachines {
		delete(l.unknown, crowded(l.unknown))
	}
	list := make([]Machine, 0, len(l.unknown))
	for _, m := range l.unknown {
		list = append(list, *m)
	}
	sort(list)
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.WriteFile(l.file, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("unknown machines: %w", err)
	}
	return nil
}

// Log returns what a server does with each request: it is said, and a file keeps who found no
// overlay. Of is by what 'caisson unknown' finds the file.
func Log(file, of string, say func(format string, args ...any)) (func(httpserver.Request), error) {
	list, err := Open(file, func(m Machine) {
		say("unknown machine at %s: %s ('caisson unknown %s' lists them)", m.From, m.Node(), of)
	})
	if err != nil {
		return nil, cli.WithHint(err, "the list is a help only: remove the file")
	}
	var once sync.Once
	return func(r httpserver.Request) {
		say("%s", r)
		host, _, err := net.SplitHostPort(r.Remote)
		if err != nil {
			return // not an address of a network
		}
		switch r.Status {
		case http.StatusOK, http.StatusNotModified, http.StatusNotFound:
			if err := list.Answered(host, r.Agent, r.Path, r.Status != http.StatusNotFound, r.Time); err != nil {
				once.Do(func() { say("warning: %v", err) })
			}
		}
	}, nil
}
