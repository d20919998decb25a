// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestMirrorOfThirdParty: a source of the same suite whose file sorts first is not Debian's.
func TestMirrorOfThirdParty(t *testing.T) {
	for name, own := range map[string]string{"etc/apt/sources.list.d/debian.sources": "Types: deb\nURIs: http://mirror.example.org/debian\nSuites: bookworm\nComponents: main\n",
		"etc/apt/sources.list": "deb http://mirror.example.org/debian bookworm main\n"} {
		dir := t.TempDir()
		for name, text := range map[string]string{"etc/os-release": "ID=debian\nVERSION_CODENAME=bookworm\n", name: own,
			"etc/apt/sources.list.d/azure-cli.list": "deb [arch=amd64 signed-by=/etc/apt/keyrings/x.gpg] https://packages.example.com/repos/azure-cli/ bookworm main\n"} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if m, _, err := hostMirror(dir); err != nil || m != "http://mirror.example.org/debian" {
			t.Errorf("%s: mirror %q, %v", name, m, err)
		}
	}
}

// TestVirtualPackage: the answer names who provides it.
func TestVirtualPackage(t *testing.T) {
	a := newArchive(t)
	a.add("postfix", "1", "Provides: mail-transport-agent")
	a.add("exim4", "1", "Provides: mail-transport-agent")
	s := a.updated()
	_, err := s.Resolve(t.Context(), Request{Install: []string{"mail-transport-agent"}})
	var unknown *Unknown
	if !errors.As(err, &unknown) || unknown.Hint() != "name one that provides it: exim4, postfix" || err.Error() != "mail-transport-agent is a virtual package" {
		t.Errorf("%v", err)
	}
	if has, err := s.Has(t.Context(), []string{"exim4", "mail-transport-agent", "none"}); err != nil || strings.Join(has, " ") != "exim4" {
		t.Errorf("the archive has %v, %v", has, err)
	}
}

// TestCredentialsStay: a URL has none, and apt reads the build host's own.
func TestCredentialsStay(t *testing.T) {
	err := Check(nil, []spec.Repository{{ID: "private", URL: "https://ci:hunter2@apt.example.org/p", Distributions: []string{"bookworm"}, Components: []string{"main"}}})
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "https://apt.example.org/p") {
		t.Errorf("a password in a URL: %v", err)
	}
	require.Tool(t, "apt-get", "apt-cache", "apt-config", "dpkg-deb")
	s, err := Open(t.Context(), t.TempDir(), "amd64", nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.run(t.Context(), "apt-config", "shell", "FILE", "Dir::Etc::netrc/f", "PARTS", "Dir::Etc::netrcparts/d")
	if err != nil || out != "FILE='/etc/apt/auth.conf'\nPARTS='/etc/apt/auth.conf.d/'\n" {
		t.Errorf("apt reads %q, %v", out, err)
	}
	t.Setenv("http_proxy", "http://proxy.example.org:3128")
	if out, err := s.run(t.Context(), "env"); err != nil || !strings.Contains(out, "http_proxy=http://proxy.example.org:3128\n") {
		t.Errorf("apt's environment: %q, %v", out, err)
	}
}

// TestEndlessMirror: of a package, and of an index that is compared with the verified one, no more is
// taken than there is.
func TestEndlessMirror(t *testing.T) {
	require.Tool(t, "apt-get", "apt-cache", "apt-config", "dpkg-deb")
	t.Setenv("no_proxy", "127.0.0.1")
	index := []byte("Suite: x\n")
	var sent atomic.Int64
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/sound/") {
			w.Write(index)
			return
		}
		for some := make([]byte, 1<<16); sent.Load() < 128<<20; sent.Add(int64(len(some))) {
			if _, err := w.Write(some); err != nil {
				return
			}
		}
	}))
	defer mirror.Close()
	state := func(below string) *State {
		uri := mirror.URL + "/" + below
		s, err := Open(t.Context(), t.TempDir(), "amd64", []Archive{{ID: "a", URI: uri, Suites: []string{"x"}, Components: []string{"main"}, Trusted: true}})
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ReplaceAll(strings.TrimPrefix(uri, "http://")+"/dists/x/InRelease", "/", "_")
		if err := os.WriteFile(s.path("lists/"+name), index, 0o644); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if !state("sound").unchanged(t.Context()) {
		t.Error("the same index is not")
	}
	endless := state("endless")
	if endless.unchanged(t.Context()) {
		t.Error("an endless index is the same")
	}
	d := Deb{Name: "app", Version: "1", Arch: "all", SHA256: strings.Repeat("a", 64), Size: 1000, Archive: "a", Path: "app.deb"}
	if err := (&Store{Dir: t.TempDir()}).Fetch(t.Context(), endless, []Deb{d}, func(Fetched) {}); err == nil {
		t.Error("an endless package was taken")
	}
	if n := sent.Load(); n > 32<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

// TestFlatRepository: apt reads one that is named as sources.list(5) says.
func TestFlatRepository(t *testing.T) {
	a := newArchive(t)
	a.add("kubelet", "1")
	r := spec.Repository{ID: "k8s", URL: "file:" + a.dir, Distributions: []string{"/"}}
	if err := Check(nil, []spec.Repository{r}); err != nil {
		t.Error(err)
	}
	archives, err := Repositories([]spec.Repository{r}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	archives[0].Trusted, archives[0].Keyring = true, ""
	s, err := Open(t.Context(), t.TempDir(), "amd64", archives)
	if err == nil {
		err = s.Update(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	debs, err := s.Resolve(t.Context(), Request{Install: []string{"kubelet"}})
	if err != nil || len(debs) != 1 || debs[0].Name != "kubelet" || debs[0].Archive != "repository:k8s" {
		t.Errorf("%+v, %v", debs, err)
	}
	for _, wrong := range []spec.Repository{
		{ID: "a", URL: r.URL, Distributions: []string{"/"}, Components: []string{"main"}},
		{ID: "b", URL: r.URL, Distributions: []string{"stable"}},
		{ID: "c", URL: r.URL, Distributions: []string{"//"}, Components: []string{"main"}},
	} {
		if err := Check(nil, []spec.Repository{wrong}); err == nil {
			t.Errorf("taken: %+v", wrong)
		}
	}
}
