// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/oidctest"
	"github.com/caisson-os/caisson/test/require"
)

// TestANewOperator: one comes, may do what their groups may, is on record with what they did, and
// leaves: then nothing of theirs opens anything, no approval of theirs counts, and the log still holds.
func TestANewOperator(t *testing.T) { aNewOperator(t, oidctest.Start) }

// TestLongANewOperator: the same at another implementation of a provider, which is certified.
func TestLongANewOperator(t *testing.T) {
	require.Long(t)
	aNewOperator(t, oidctest.StartCertified)
}

func aNewOperator(t *testing.T, start func(testing.TB, string) *oidctest.Provider) {
	s, at := peopledAt(t, start)
	key, own, others := sign.VerifierOf(newKey(t)).ID(), newKey(t), newKey(t)
	fleet := func(operators ...crypto.Signer) published.Policy {
		p := published.Policy{Fleet: "metal", Threshold: 1}
		for _, one := range operators {
			v, err := sign.NewVerifier(one.Public())
			if err != nil {
				t.Fatal(err)
			}
			p.Operator = append(p.Operator, v)
		}
		return p
	}
	accept := func(who *http.Client) int {
		t.Helper()
		resp, err := who.Post(s.url+"/v1/nodes/n1/accept", "text/plain", strings.NewReader(key))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() // only its status counts
		return resp.StatusCode
	}
	comes := func(says string, groups ...string) *http.Client {
		t.Helper()
		at.Groups(map[string][]string{"id2": groups})
		who := person(t)
		if _, page := at.LogIn(who, s.url+"/login/provider?to=/nodes"); !strings.Contains(page, says) {
			t.Fatalf("in groups %v: %s", groups, page)
		}
		return who
	}
	if status := accept(comes("test-user2 is in no group")); status != http.StatusUnauthorized {
		t.Errorf("on the first day, in no group: %d", status)
	}
	if status := accept(comes("Logged in.", "all")); status != http.StatusForbidden {
		t.Errorf("as a reader: %d", status)
	}
	who := comes("Logged in.", "all", "ops")
	token := s.token(t, who)
	if status := accept(who); status != http.StatusNoContent {
		t.Errorf("as an operator: %d", status)
	}
	if status, text := s.ask("POST", "/v1/nodes/n1/accept", []byte(key), "Authorization", "Bearer "+token); status != http.StatusNoContent {
		t.Errorf("by a command: %d %s", status, text)
	}
	plan := preview.Act + "sha256:" + strings.Repeat("ab", 32)
	said, err := preview.Approve([]crypto.Signer{own}, plan, sign.ApprovalPredicate{Fleet: "metal", Author: "test-user2", Reason: "looked at it", IssuedAt: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := preview.ReadApproval(fleet(own, others), plan, said[0]); err != nil || got.Author != "test-user2" {
		t.Errorf("an approval: %+v, %v", got, err)
	}
	if _, page := s.browse(who, "/audit?who=test-user2"); strings.Count(page, `<td data-is="what">`) != 6 || !strings.Contains(page, "The chain holds") {
		t.Errorf("what is on record:\n%s", page)
	}
	export := s.logged("denied", "login", "login", "token", "accept", "accept")

	at.Groups(nil) // the day of leaving
	s.sessionsEnd()
	if status := accept(who); status != http.StatusUnauthorized {
		t.Errorf("the session goes on: %d", status)
	}
	if status, _ := s.ask("POST", "/v1/nodes/n1/accept", []byte(key), "Authorization", "Bearer "+token); status != http.StatusUnauthorized {
		t.Errorf("the token goes on: %d", status)
	}
	if status := accept(comes("test-user2 is in no group")); status != http.StatusUnauthorized {
		t.Errorf("back again: %d", status)
	}
	var refused *refusal.Refusal
	if _, err := preview.ReadApproval(fleet(others), plan, said[0]); !errors.As(err, &refused) || refused.Code != refusal.UnknownKey {
		t.Errorf("an approval by a key that left: %v", err)
	}
	now := s.logged("denied", "login", "login", "token", "accept", "accept", "denied")
	if err := errors.Join(audit.Check(audit.Row{}, now), audit.Same(export, now)); err != nil {
		t.Error(err)
	}

	// Somebody who has the database writes that another one did it, in a chain made anew.
	var before audit.Row
	for _, r := range now {
		r.Who = "kim"
		before = r.Chain(before)
		text, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		if s.alter("UPDATE acts SET line = '" + string(text) + "' WHERE seq = " + fmt.Sprint(r.Seq)); r.Seq == 4 {
			if err := audit.Check(audit.Row{}, s.logged("denied", "login", "login", "token", "accept", "accept", "denied")); !errors.Is(err, audit.ErrBroken) {
				t.Errorf("a line is changed: %v", err)
			}
		}
	}
	now = s.logged("denied", "login", "login", "token", "accept", "accept", "denied")
	if err := audit.Check(audit.Row{}, now); err != nil {
		t.Error(err)
	}
	if err := audit.Same(export, now); !errors.Is(err, audit.ErrBroken) {
		t.Errorf("a log that was made anew is the one that was exported: %v", err)
	}
}

// logged is an export of the audit log, which has these acts.
func (s *site) logged(want ...audit.Act) []audit.Row {
	s.Helper()
	_, text := s.ask("GET", "/v1/acts", nil, "Authorization", s.bearer(people.Reader))
	rows, err := audit.Read([]byte(text))
	if err != nil {
		s.Fatal(err)
	}
	var got []audit.Act
	for _, r := range rows {
		got = append(got, r.Act)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Fatalf("the log has %v, not %v", got, want)
	}
	return rows
}
