// SPDX-License-Identifier: Apache-2.0

// Package oidctest runs real OpenID providers for tests, see test/provider, and logs people in at them
// as a browser without scripts would.
//
// Only tests import it.
package oidctest

import (
	"bufio"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/test/require"
)

// Client and Secret are those of the one service that the provider knows.
const Client, Secret = "caisson", "secret of caisson"

// Password is that of both people.
const Password = "verysecure"

// Provider is one that runs until its test ends.
type Provider struct {
	Issuer string
	Stop   func()
	groups string
	t      testing.TB
}

var built struct {
	sync.Once
	program string
	said    []byte
	err     error
}

// build builds the provider, once a process.
func build(t testing.TB) string {
	t.Helper()
	require.Net(t)
	built.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "caisson-provider-"); built.err != nil {
			return
		}
		built.program = filepath.Join(dir, "provider")
		cmd := exec.Command("go", "build", "-o", built.program, ".")
		if cmd.Dir, built.err = source(); built.err != nil {
			return
		}
		built.said, built.err = cmd.CombinedOutput()
	})
	if built.err != nil {
		t.Fatalf("build the provider: %v\n%s", built.err, built.said)
	}
	return built.program
}

// source returns the folder test/provider.
func source() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	if filepath.IsAbs(here) {
		return filepath.Join(filepath.Dir(filepath.Dir(here)), "provider"), nil
	}
	return filepath.Abs("../../test/provider") // with -trimpath
}

// Start runs zitadel's provider, which sends people back to callback.
func Start(t testing.TB, callback string) *Provider {
	t.Helper()
	return start(t, exec.Command(build(t)), callback)
}

// StartCertified runs npm's oidc-provider, which is another implementation, likewise.
func StartCertified(t testing.TB, callback string) *Provider {
	t.Helper()
	require.Net(t)
	require.Tool(t, "node", "npm")
	from, err := source()
	if err == nil {
		from = filepath.Join(from, "npm")
	}
	dir := t.TempDir()
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(from))
	}
	if err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if said, err := install.CombinedOutput(); err != nil {
		require.Missing(t, "net", "npm installs no oidc-provider: "+string(said))
	}
	return start(t, exec.Command("node", filepath.Join(dir, "provider.mjs")), callback)
}

// start runs a program of a provider.
func start(t testing.TB, cmd *exec.Cmd, callback string) *Provider {
	t.Helper()
	p := &Provider{groups: filepath.Join(t.TempDir(), "groups.json"), t: t}
	p.Groups(nil)
	cmd.Args = append(cmd.Args, callback, p.groups)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Stop = sync.OnceFunc(func() {
		_ = in.Close() // it ends with it
		_ = cmd.Wait() // likewise
	})
	t.Cleanup(p.Stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p.Issuer = strings.TrimSpace(line)
	return p
}

// Groups says which groups people are in from now on; their ids are id1 and id2.
func (p *Provider) Groups(of map[string][]string) {
	p.t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := durable.WriteFile(p.groups, text, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

var (
	action = regexp.MustCompile(`<form[^>]* action="([^"]+)"`)
	hidden = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]+)"`)
)

// mostForms is more than a provider has between a link and the way back.
const mostForms = 5

// LogIn has a client follow an address to the provider, log in as test-user2, whose id is id2 at
// zitadel's, agree to what it is asked there, and come back. It returns the last answer, whose body
// was read, and the body.
func (p *Provider) LogIn(client *http.Client, at string) (*http.Response, string) {
	p.t.Helper()
	resp, page := p.get(client, func() (*http.Response, error) { return client.Get(at) })
	for range mostForms {
		form := action.FindStringSubmatch(page)
		if form == nil || !strings.HasPrefix(resp.Request.URL.String(), p.Issuer) {
			break // it was not led there, or is back
		}
		to, err := resp.Request.URL.Parse(html.UnescapeString(form[1]))
		if err != nil {
			p.t.Fatal(err)
		}
		fields := url.Values{"username": {"test-user2"}, "login": {"test-user2"}, "password": {Password}}
		for _, f := range hidden.FindAllStringSubmatch(page, -1) {
			fields.Set(f[1], f[2])
		}
		resp, page = p.get(client, func() (*http.Response, error) { return client.PostForm(to.String(), fields) })
	}
	return resp, page
}

func (p *Provider) get(client *http.Client, do func() (*http.Response, error)) (*http.Response, string) {
	p.t.Helper()
	client.Timeout = time.Minute
	resp, err := do()
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close() // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		p.t.Fatal(err)
	}
	return resp, string(body)
}
