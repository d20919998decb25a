// SPDX-License-Identifier: Apache-2.0

package server

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
	known  map[[sha256.Size]byte]caller
	open   bool // nodes report without a token
}

// reportsOpen is the line of a file by which nodes need no token: what they send is signed.
const reportsOpen = "reports open"

// tokenPrefix makes a token known to those who look for secrets where none belong.
const tokenPrefix = "caisson_"

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`)

// OpenTokens reads a file of tokens.
func OpenTokens(name string) (*Tokens, error) {
	t := &Tokens{name: name}
	return t, t.read()
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
	known, open := map[[sha256.Size]byte]caller{}, false
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
		var sum [sha256.Size]byte
		if len(words) != 3 || !isRole(words[0]) || !tokenName.MatchString(words[1]) {
			return fmt.Errorf("tokens: %s:%d: neither ROLE NAME SHA256 nor %q", t.name, n, reportsOpen)
		}
		if size, err := hex.Decode(sum[:], []byte(words[2])); err != nil || size != len(sum) || len(words[2]) != 2*len(sum) {
			return fmt.Errorf("tokens: %s:%d: no SHA-256 of a token", t.name, n)
		}
		known[sum] = caller{Name: words[1], Role: Role(words[0])}
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
	if err := t.read(); err != nil {
		t.known, t.open, t.stamp = nil, false, time.Time{}
	}
}

// find returns whose a token is.
func (t *Tokens) find(token string) caller { return t.findSum(sha256.Sum256([]byte(token))) }

func (t *Tokens) findSum(sum [sha256.Size]byte) caller {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh()
	return t.known[sum] // by its hash: how long that takes depends on no token
}

// openToNodes reports whether nodes report without a token.
func (t *Tokens) openToNodes() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh()
	return t.open
}

// shutOut reports whether no node may report: nodes need a token, and there is none.
func (t *Tokens) shutOut() bool {
	open := t.openToNodes()
	t.mu.Lock()
	defer t.mu.Unlock()
	return !open && !slices.ContainsFunc(slices.Collect(maps.Values(t.known)), func(c caller) bool { return c.Role == Reporter })
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
	token := tokenPrefix + rand.Text()
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
