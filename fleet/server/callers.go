// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
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
	failed bool // the file was not right when it was read last
	say    func(format string, args ...any)
}

// reportsOpen is the line of a file by which nodes need no token: what they send is signed.
const reportsOpen = "reports open"

// tokenPrefix makes a token known to those who look for secrets where none belong.
const tokenPrefix = "caisson_"

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`)

// OpenTokens reads a file of tokens.
func OpenTokens(name string) (*Tokens, error) {
	t := &Tokens{name: name, say: func(string, ...any) {}}
	return t, t.read()
}

// tell has what becomes of the file said from now on.
func (t *Tokens) tell(say func(string, ...any)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say = say
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

// People say who may log in by a provider, and as what.
type People struct {
	Provider *people.Provider
	Groups   map[string]Role // what their groups may do here: [Reader] or [Operator]
	Session  time.Duration   // until the provider is asked again
}

// mostSaid is how much of an error is shown, which may quote all that a provider answered.
const mostSaid = 500

// BackPath is where a provider sends people back to.
const BackPath = "/login/back"

// role is the most that one of a person's groups may do.
func (p *People) role(groups []string) (most Role) {
	for _, name := range groups {
		if role := p.Groups[name]; role == Operator || most == Nobody {
			most = role
		}
	}
	return most
}

// logins are how people come from a provider.
type logins struct{ s *Server }

// flowCookie keeps a login while the browser is at the provider. It is sent where another site leads
// back here, unlike that of a session.
func (l logins) flowCookie() string { return l.s.cookie() + "-login" }

func (l logins) toProvider(w http.ResponseWriter, req *http.Request) {
	to := local(req.URL.Query().Get("to"))
	if l.s.o.People == nil {
		http.Redirect(w, req, "/login", http.StatusSeeOther)
		return
	}
	at, kept, err := l.s.o.People.Provider.Begin(req.Context(), to)
	if err != nil {
		l.s.o.Say("login: %.*v", mostSaid, err)
		l.s.show(w, req, http.StatusBadGateway, login, l.s.loginForm(to, l.s.o.People.Provider.Host()+
			" does not answer; the log of this service says more."))
		return
	}
	l.s.sessions.end(req, l.s.cookie()) // on the way back no cookie says which session the new one is in place of
	http.SetCookie(w, &http.Cookie{Name: l.flowCookie(), Value: kept, Path: "/", HttpOnly: true, Secure: l.s.o.TLS,
		SameSite: http.SameSiteLaxMode, MaxAge: 600})
	http.Redirect(w, req, at, http.StatusSeeOther)
}

func (l logins) fromProvider(w http.ResponseWriter, req *http.Request) {
	if l.s.o.People == nil {
		http.Redirect(w, req, "/login", http.StatusSeeOther)
		return
	}
	kept := ""
	if c, err := req.Cookie(l.flowCookie()); err == nil {
		kept = c.Value
	}
	// one code, one login
	http.SetCookie(w, &http.Cookie{Name: l.flowCookie(), Path: "/", HttpOnly: true, Secure: l.s.o.TLS,
		SameSite: http.SameSiteLaxMode, MaxAge: -1})
	who, to, err := l.s.o.People.Provider.Finish(req.Context(), kept, req.URL.Query())
	if err != nil {
		if !errors.Is(err, people.ErrFlow) {
			l.s.o.Say("login: %.*v", mostSaid, err)
		}
		l.s.show(w, req, http.StatusForbidden, login, l.s.loginForm("/", plain.Line(fmt.Sprintf("%.*v", mostSaid, err))))
		return
	}
	if !l.s.limits.act("login " + who.Subject) {
		l.s.show(w, req, http.StatusTooManyRequests, login, l.s.loginForm(to, who.Name+" came too often: wait a minute."))
		return
	}
	role := l.s.o.People.role(who.Groups)
	if role == Nobody {
		if !who.Told {
			l.s.o.Say("login: %s says nothing of %s's groups: the claim that --oidc-claim names is not there",
				l.s.o.People.Provider.Host(), who.Name)
		}
		l.note(req, who, audit.Denied)
		l.s.show(w, req, http.StatusForbidden, login, l.s.loginForm(to, who.Name+" is in no group that may do anything here."))
		return
	}
	l.note(req, who, audit.Login)
	l.s.begin(w, session{person: &caller{Name: l.nameOf(who), Role: role, subject: who.Subject}}, l.s.o.People.Session)
	// Another site led here, so the cookie of the session would not be sent by a redirect.
	l.s.show(w, req, http.StatusOK, page{Title: "Logged in", text: "back.html"}, local(to))
}

// nameOf is what a person goes by on pages and on record. Some can choose their name: the first
// parenthesis has the subject, which is nobody else's.
func (l logins) nameOf(who people.Person) string {
	name := strings.NewReplacer("(", "[", ")", "]").Replace(who.Name)
	return fmt.Sprintf("%s (%s) at %s", name, who.Subject, l.s.o.People.Provider.Host())
}

// note writes that somebody came from the provider. An instance that does not write says it in its log.
func (l logins) note(req *http.Request, who people.Person, act audit.Act) {
	if err := l.s.o.Hub.Act(req.Context(), l.nameOf(who), act, who.Subject, strings.Join(who.Groups, ", ")); err != nil {
		l.s.o.Say("login: %s (%s) %s: not in the audit log: %v", who.Name, who.Subject, act, err)
	}
}

// personToken shows a person a token that ends with the session: commands act in the person's name.
func (l logins) personToken(w http.ResponseWriter, req *http.Request) {
	who := callerOf(req)
	if !who.Person {
		http.Redirect(w, req, "/", http.StatusSeeOther)
		return
	}
	if !l.s.limits.act("token " + who.subject) {
		l.s.tooMany(w, "tokens")
		return
	}
	if err := l.s.o.Hub.Act(req.Context(), who.Name, audit.Token, string(who.Role),
		"until "+who.until.UTC().Format(time.RFC3339)); err != nil {
		l.s.failed(w, err)
		return
	}
	token := l.s.sessions.add(session{person: &who, login: who.login, until: who.until})
	l.s.show(w, req, http.StatusOK, page{Title: "Token", text: "token.html"}, map[string]any{"Token": token, "Until": who.until})
}

// actsAtOnce is how many rows of the audit log an answer has.
const actsAtOnce = 10_000

// getActs answers with rows, one line of JSON each.
func (s *Server) getActs(w http.ResponseWriter, req *http.Request) {
	after, err := strconv.ParseInt(cmp.Or(req.URL.Query().Get("after"), "0"), 10, 64)
	if err != nil || after < 0 {
		s.fail(w, http.StatusBadRequest, query.WrongQuery, "after is the number of a row")
		return
	}
	rows, err := s.o.Hub.Acts(req.Context(), after, actsAtOnce)
	if err != nil {
		s.failed(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	lines := json.NewEncoder(w)
	for _, r := range rows {
		if lines.Encode(r) != nil {
			return // the client is gone
		}
	}
}

// ParseGroups reads which groups may do what, each as ROLE=GROUP.
func ParseGroups(list []string) (map[string]Role, error) {
	groups := map[string]Role{}
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
