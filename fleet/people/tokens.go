// SPDX-License-Identifier: Apache-2.0

package people

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/stall"
)

// Role names a set of rights.
type Role string

// Roles. An operator may read, too, and so may who drains nodes; a reporter may only report.
const (
	Nobody   Role = ""
	Reader   Role = "reader"
	Reporter Role = "reporter"
	Operator Role = "operator"
	Drain    Role = "drain"
)

// May reports whether one who has a role may do what another role is for.
func (r Role) May(what Role) bool {
	return what == Nobody || r == what || (r == Operator || r == Drain) && what == Reader
}

// Caller says who asks.
type Caller struct {
	Name   string
	Role   Role
	Person bool // whom a provider has named, and who is here by that login, not by a token of it

	Subject string            // of a person
	Login   [sha256.Size]byte // of a person: the session
	Until   time.Time         // of a person: when the session ends
}

// Groups say what the groups of a provider may do: [Reader] or [Operator].
type Groups map[string]Role

// ParseGroups reads which groups may do what, each as ROLE=GROUP.
func ParseGroups(list []string) (Groups, error) {
	groups := Groups{}
	for _, row := range list {
		role, group, ok := strings.Cut(row, "=")
		if !ok || group == "" || !slices.Contains([]Role{Reader, Operator}, Role(role)) {
			return nil, errors.New("neither reader=GROUP nor operator=GROUP: " + row)
		}
		if before, twice := groups[group]; twice && before != Role(role) {
			return nil, errors.New("group " + group + " has two roles")
		}
		groups[group] = Role(role)
	}
	return groups, nil
}

// Role is the most that one of a person's groups may do.
func (g Groups) Role(groups []string) (most Role) {
	for _, name := range groups {
		if role := g[name]; role == Operator || most == Nobody {
			most = role
		}
	}
	return most
}

// Tokens is a file with one token a line: its role, its name, and the SHA-256 of it. The
// token itself is nowhere. A line that is added or taken away counts within seconds.
//
// Nodes need a token of role reporter, unless the line [reportsOpen] says that they need
// none: that the last such token was taken away lets nobody in.
type Tokens struct {
	name string

	mu     sync.Mutex
	looked time.Time
	stamp  time.Time
	size   int64
	known  map[[sha256.Size]byte]Caller
	open   bool // nodes report without a token
	failed bool // the file was not right when it was read last
	say    func(format string, args ...any)
}

// reportsOpen is the line of a file by which nodes need no token: what they send is signed.
const reportsOpen = "reports open"

// TokenPrefix makes a token known to those who look for secrets where none belong.
const TokenPrefix = "caisson_"

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`)

// OpenTokens reads a file of tokens.
func OpenTokens(name string) (*Tokens, error) {
	t := &Tokens{name: name, say: func(string, ...any) {}}
	return t, t.read()
}

// Tell has what becomes of the file said from now on, and now where no node may report.
func (t *Tokens) Tell(say func(string, ...any)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say = say
	t.fresh()
	if !t.open && !slices.ContainsFunc(slices.Collect(maps.Values(t.known)), func(c Caller) bool { return c.Role == Reporter }) {
		say("no node may report: %s has neither a token of role reporter nor the line %q", t.name, reportsOpen)
	}
}

func (t *Tokens) read() error {
	info, err := os.Stat(t.name)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	text, err := ownfiles.ReadLinked(t.name)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	known, open := map[[sha256.Size]byte]Caller{}, false
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if strings.Join(words, " ") == reportsOpen {
			open = true
			continue
		}
		if len(words) != 3 || !isRole(words[0]) || !tokenName.MatchString(words[1]) {
			return fmt.Errorf("tokens: %s:%d: neither ROLE NAME SHA256 nor %q", t.name, n, reportsOpen)
		}
		sum, err := hex.DecodeString(words[2])
		if err != nil || len(sum) != sha256.Size {
			return fmt.Errorf("tokens: %s:%d: no SHA-256 of a token", t.name, n)
		}
		known[[sha256.Size]byte(sum)] = Caller{Name: words[1], Role: Role(words[0])}
	}
	t.known, t.open, t.stamp, t.size, t.looked = known, open, info.ModTime(), info.Size(), time.Now()
	return nil
}

func isRole(role string) bool {
	return Role(role) == Reader || Role(role) == Reporter || Role(role) == Operator || Role(role) == Drain
}

// fresh reads the file again where it has changed. One that cannot be read any more
// lets nobody in.
func (t *Tokens) fresh() {
	if time.Since(t.looked) < 2*time.Second {
		return
	}
	t.looked = time.Now()
	info, err := os.Stat(t.name)
	if err == nil && info.ModTime().Equal(t.stamp) && info.Size() == t.size {
		return
	}
	err = t.read()
	switch {
	case err != nil && !t.failed:
		t.say("%v: nobody is let in until it is right", err)
	case err == nil && t.failed:
		t.say("tokens: %s is right again", t.name)
	}
	if t.failed = err != nil; t.failed {
		t.known, t.open, t.stamp = nil, false, time.Time{}
	}
}

// Find returns whose a token is.
func (t *Tokens) Find(token string) Caller { return t.findSum(sha256.Sum256([]byte(token))) }

func (t *Tokens) findSum(sum [sha256.Size]byte) Caller {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh()
	return t.known[sum] // by its hash: how long that takes depends on no token
}

// OpenToNodes reports whether nodes report without a token.
func (t *Tokens) OpenToNodes() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh()
	return t.open
}

// AddToken makes a token, adds its line to a file, and returns it: it is shown once. A new
// file lets nodes report without a token, until one of role reporter is added.
func AddToken(file, name string, role Role) (string, error) {
	if !isRole(string(role)) {
		return "", fmt.Errorf("unknown role %q", role)
	}
	if !tokenName.MatchString(name) {
		return "", fmt.Errorf("%q cannot be the name of a token", name)
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return "", fmt.Errorf("tokens: %w", err)
	}
	defer dir.Close() // its lock ends with it
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := stall.Lock(ctx, dir, false); err != nil { // another one may add a token
		return "", fmt.Errorf("tokens: lock %s: %w", dir.Name(), err)
	}
	text, err := ownfiles.ReadLinked(file)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return "", fmt.Errorf("tokens: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[1] == name {
			return "", fmt.Errorf("%s has a token %q already: remove its line first", file, name)
		}
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	switch {
	case role == Reporter:
		text = closed(text)
	case missing: // one that somebody emptied stays closed
		text = []byte("# Nodes report without a token as long as this line is here; a token of role reporter removes it.\n" + reportsOpen + "\n")
	}
	token := TokenPrefix + rand.Text()
	text = fmt.Appendf(text, "%s %s %x\n", role, name, sha256.Sum256([]byte(token)))
	if err := durable.WriteFile(file, text, 0o600); err != nil {
		return "", fmt.Errorf("tokens: %w", err)
	}
	return token, nil
}

// closed returns the text of a file by which nodes need a token.
func closed(text []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(text) {
		if string(bytes.Join(bytes.Fields(line), []byte(" "))) != reportsOpen {
			kept = append(kept, line...)
		}
	}
	return kept
}
