// SPDX-License-Identifier: Apache-2.0

package people

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestTokensAtOnce: of several who add a token at once, none takes another's away, and a
// line of any length hides none behind it.
func TestTokensAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("# "+strings.Repeat("x", 100<<10)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var made [8]string
	var adding sync.WaitGroup
	for i := range made {
		adding.Go(func() {
			var err error
			if made[i], err = AddToken(file, fmt.Sprint("t", i), Reader); err != nil {
				t.Error(err)
			}
		})
	}
	adding.Wait()
	tokens, err := OpenTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, token := range made {
		if who := tokens.Find(token); who.Name != fmt.Sprint("t", i) {
			t.Errorf("token %d is of %q", i, who.Name)
		}
	}
}

// TestTokensOfAFile: a line that goes is a token that goes, and a file for all to read
// lets nobody in.
func TestTokensOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	token, err := AddToken(file, "eve", Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AddToken(file, "eve", Operator); err == nil {
		t.Error("a name was given twice")
	}
	tokens, err := OpenTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), token) {
		t.Errorf("the token is in the file: %v", err)
	}
	if who := tokens.Find(token); who != (Caller{Name: "eve", Role: Reader}) {
		t.Errorf("%+v", who)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tokens.looked = time.Time{}
	if who := tokens.Find(token); who != (Caller{}) {
		t.Errorf("after its line went: %+v", who)
	}
	if _, err := AddToken(file, "bob", Reader); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTokens(file); err == nil {
		t.Error("a file for all to read was taken")
	}
	for _, bad := range []string{"reader eve", "root eve " + strings.Repeat("0", 64), "reader eve zz", "reader ../x " + strings.Repeat("0", 64)} {
		name := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(name, []byte(bad+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTokens(name); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestReportsAreOpen as long as a file says so, which a new one does and one with a token
// for nodes does not.
func TestReportsAreOpen(t *testing.T) {
	file := t.TempDir() + "/tokens"
	for i, c := range []struct {
		role Role
		open bool
	}{{Operator, true}, {Reader, true}, {Reporter, false}, {Reader, false}} {
		if _, err := AddToken(file, fmt.Sprint("t", i), c.role); err != nil {
			t.Fatal(err)
		}
		tokens, err := OpenTokens(file)
		if err != nil {
			t.Fatal(err)
		}
		tokens.Tell(func(format string, args ...any) {
			t.Errorf("after a token of role %s: "+format, append([]any{c.role}, args...)...)
		})
		if got := tokens.OpenToNodes(); got != c.open {
			t.Errorf("after a token of role %s nodes need none: %v", c.role, got)
		}
	}
	if err := os.WriteFile(file, []byte("reports open\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := OpenTokens(file)
	if err != nil || !tokens.OpenToNodes() {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil { // it cannot be read any more
		t.Fatal(err)
	}
	tokens.looked, tokens.stamp = time.Time{}, time.Time{}
	if tokens.OpenToNodes() {
		t.Error("a file for all to change opens the service")
	}
}

// TestTokensThatAreWrong: a file that is not right any more lets nobody in, and the log says so, once;
// when it is right again it says that, too.
func TestTokensThatAreWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	token, err := AddToken(file, "eve", Operator)
	if err != nil {
		t.Fatal(err)
	}
	right, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := OpenTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	tokens.Tell(func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) })
	for i, c := range []struct {
		text string
		role Role
		want string
	}{
		{string(right) + "boss x y\n", Nobody, ":4: neither ROLE NAME SHA256"}, {string(right) + "boss x yy\n", Nobody, ""},
		{string(right), Operator, "is right again"}, {string(right) + "\n", Operator, ""},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		said.Reset()
		tokens.looked = time.Time{}
		if got := tokens.Find(token).Role; got != c.role || !strings.Contains(said.String(), c.want) || (said.Len() > 0) != (c.want != "") {
			t.Errorf("%d: role %q, said %q", i, got, &said)
		}
	}
	for _, sum := range []string{strings.Repeat("a", 62), strings.Repeat("a", 66), strings.Repeat("a", 200), strings.Repeat("x", 64)} {
		if err := os.WriteFile(file, []byte("operator eve "+sum+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTokens(file); err == nil || !strings.HasSuffix(err.Error(), ":1: no SHA-256 of a token") {
			t.Errorf("%d digits: %v", len(sum), err)
		}
	}
	// What went wrong before somebody listened is said to the first who does.
	if err := os.WriteFile(file, []byte("boss x y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said.Reset()
	tokens.looked = time.Time{}
	tokens.Tell(func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) })
	if !strings.Contains(said.String(), ":1: neither ROLE NAME SHA256") {
		t.Errorf("said %q", &said)
	}
}

// TestParseGroups: a group has one role, and a person the most of theirs.
func TestParseGroups(t *testing.T) {
	if groups, err := ParseGroups([]string{"operator=ops", "reader=every=one", "operator=ops"}); err != nil || groups["ops"] != Operator || groups["every=one"] != Reader {
		t.Errorf("%v, %v", groups, err)
	}
	for _, bad := range [][]string{{"ops"}, {"operator="}, {"reporter=nodes"}, {"=ops"}, {"operator=ops", "reader=ops"}} {
		if _, err := ParseGroups(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if roles := []Role{Groups{"a": Reader, "b": Operator}.Role([]string{"a", "b", "a"}), Groups(nil).Role([]string{"a"})}; !slices.Equal(roles, []Role{Operator, Nobody}) {
		t.Errorf("%v", roles)
	}
}

// TestASessionEnds at its time, and with the session that a token is of.
func TestASessionEnds(t *testing.T) {
	tokens := &Tokens{name: filepath.Join(t.TempDir(), "none"), say: func(string, ...any) {}}
	s := NewSessions()
	over := s.Add(Session{Person: &Caller{Name: "eve"}, Until: time.Now().Add(-time.Second)})
	value := s.Add(Session{Person: &Caller{Name: "eve", Role: Reader}, Until: time.Now().Add(time.Hour)})
	who := s.Find(value, tokens)
	if gone := s.Find(over, tokens); gone != (Caller{}) || who.Name != "eve" || !who.Person || who.Login != sha256.Sum256([]byte(value)) {
		t.Fatalf("%+v, %+v", gone, who)
	}
	token := s.Add(Session{Person: &who, Login: who.Login, Until: who.Until})
	if of := s.Find(token, tokens); of.Name != "eve" || of.Person {
		t.Errorf("a token of the session: %+v", of)
	}
	req := httptest.NewRequest("POST", "/logout", nil)
	req.AddCookie(&http.Cookie{Name: "caisson", Value: value})
	if s.End(req, "caisson"); s.Find(value, tokens) != (Caller{}) || s.Find(token, tokens) != (Caller{}) {
		t.Error("it goes on")
	}
}
