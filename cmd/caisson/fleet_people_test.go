// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/test/oidctest"
)

// TestPeopleOfTheFleet: what the flags of a service say of people holds at a real provider: who they are,
// what their groups may do, and for how long.
func TestPeopleOfTheFleet(t *testing.T) {
	listen := fmt.Sprintf("127.%d.%d.%d:8090", 1+rand.N(200), rand.N(256), 1+rand.N(250)) // no test has another one's
	at := oidctest.Start(t, "http://"+listen+server.BackPath)
	at.Groups(map[string][]string{"id2": {"wheel", "admins"}})
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"secret": oidctest.Secret + "\n", "site.yaml": "apiVersion: caisson.dev/v1alpha1\nkind: Site\n" +
		"metadata: {name: test}\nlayer: {base: {debian: {suite: trixie}}}\n" +
		"trust: {keys: {operator: operator.pub, release: operator.pub}}\nnodes: [{name: a}]\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(ctx context.Context, out io.Writer, args ...string) error {
		root := newApp(out, t.Output()).root()
		root.SetArgs(args)
		return root.ExecuteContext(ctx)
	}
	for _, args := range [][]string{{"keys", "generate", "operator"}, {"fleet", "token", "nodes", "--role", "reporter", "--tokens", "tokens"}} {
		if err := run(t.Context(), io.Discard, args...); err != nil {
			t.Fatal(args, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, write, "fleet", "serve", "--from", "oci:out", "--site", "site.yaml", "--listen", listen, "--tokens", "tokens",
			"--oidc-issuer", at.Issuer, "--oidc-secret", "secret", "--oidc-claim", "groups", "--oidc-group", "operator=admins",
			"--oidc-group", "reader=wheel", "--oidc-session", "7m")
		_ = write.CloseWithError(io.EOF) // never fails
		ended <- err
	}()
	address, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err, <-ended)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	who := &http.Client{Jar: jar}
	resp, page := at.LogIn(who, strings.TrimSpace(address)+"/login/provider")
	var lasts []int
	for _, c := range resp.Cookies() {
		if c.Name == "caisson" {
			lasts = append(lasts, c.MaxAge)
		}
	}
	if !strings.Contains(page, "Logged in.") || fmt.Sprint(lasts) != "[420]" {
		t.Errorf("sessions of %v seconds:\n%s", lasts, page)
	}
	release, err := who.Post(strings.TrimSpace(address)+"/v1/slots/default/a/release", "text/plain", strings.NewReader("it burnt"))
	if err != nil {
		t.Fatal(err)
	}
	defer release.Body.Close() // only its status counts
	if release.StatusCode == http.StatusForbidden || release.StatusCode == http.StatusUnauthorized {
		t.Errorf("one of the operators' group may not do it: %s", release.Status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
