// SPDX-License-Identifier: Apache-2.0

// Package oidctest runs a real OpenID provider for tests, see test/provider, and logs people in at it
// as a browser without scripts would.
//
// Only tests import it.
package oidctest

import (
	"bufio"
	"encoding/json"
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
		_, here, _, _ := runtime.Caller(0)
		if !filepath.IsAbs(here) { // with -trimpath
			here, built.err = filepath.Abs("../../test/oidctest/oidctest.go")
		}
		var dir string
		if dir, built.err = os.MkdirTemp("", "caisson-provider-"); built.err != nil {
			return
		}
		built.program = filepath.Join(dir, "provider")
		cmd := exec.Command("go", "build", "-o", built.program, ".")
		cmd.Dir = filepath.Join(filepath.Dir(filepath.Dir(here)), "provider")
		built.said, built.err = cmd.CombinedOutput()
	})
	if built.err != nil {
		t.Fatalf("build the provider: %v\n%s", built.err, built.said)
	}
	return built.program
}

// Start runs a provider that sends people back to callback.
func Start(t testing.TB, callback string) *Provider {
	t.Helper()
	p := &Provider{groups: filepath.Join(t.TempDir(), "groups.json"), t: t}
	p.Groups(nil)
	cmd := exec.Command(build(t), callback, p.groups)
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

var hidden = regexp.MustCompile(`name="id" value="([^"]+)"`)

// LogIn has a client follow an address to the provider, log in as test-user2, whose id is id2, and come
// back. It returns the last answer, whose body was read, and the body.
func (p *Provider) LogIn(client *http.Client, at string) (*http.Response, string) {
	p.t.Helper()
	resp, form := p.get(client, func() (*http.Response, error) { return client.Get(at) })
	id := hidden.FindStringSubmatch(form)
	if id == nil {
		return resp, form // it was not led there
	}
	return p.get(client, func() (*http.Response, error) {
		return client.PostForm(p.Issuer+"login/username", url.Values{"id": {id[1]}, "username": {"test-user2"}, "password": {Password}})
	})
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
