// SPDX-License-Identifier: Apache-2.0

package keychain

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/caisson-os/caisson/oci/pull"
)

const host = "registry.example.org:5000"

var ci = pull.Login{User: "ci", Password: "secret"}

// workstation is a home without credentials, and a folder of programs on PATH.
func workstation(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	for _, name := range []string{"DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", envHost, envUser, envPassword} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("PATH", filepath.Join(home, "bin")+":"+os.Getenv("PATH"))
	return home
}

func put(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), mode), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
}

// auths is a file with one entry.
func auths(key string, l pull.Login) string {
	return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, key, base64.StdEncoding.EncodeToString([]byte(l.User+":"+l.Password)))
}

func TestFind(t *testing.T) {
	other := pull.Login{User: "other", Password: "x"}
	for _, c := range []struct {
		name   string
		set    map[string]string // environment
		files  map[string]string // below the home
		prefix string
		want   pull.Login
	}{
		{name: "nothing"},
		{name: "docker", files: map[string]string{".docker/config.json": auths(host, ci)}, want: ci},
		{name: "docker, elsewhere", set: map[string]string{"DOCKER_CONFIG": "~/d"}, files: map[string]string{"d/config.json": auths(host, ci), ".docker/config.json": auths(host, other)}, want: ci},
		{name: "docker, written as a URL of old", files: map[string]string{".docker/config.json": auths("https://"+host+"/v1/", ci)}, want: ci},
		{name: "another port", files: map[string]string{".docker/config.json": auths("registry.example.org", ci)}},
		{name: "a longer name", files: map[string]string{".docker/config.json": auths("x."+host, ci)}},
		{name: "podman, named", set: map[string]string{"REGISTRY_AUTH_FILE": "~/a.json"}, files: map[string]string{"a.json": auths(host, ci)}, want: ci},
		{name: "podman, of the session", set: map[string]string{"XDG_RUNTIME_DIR": "~/run"}, files: map[string]string{"run/containers/auth.json": auths(host, ci)}, want: ci},
		{name: "podman, kept", files: map[string]string{".config/containers/auth.json": auths(host, ci)}, want: ci},
		{name: "docker before podman", files: map[string]string{".docker/config.json": auths(host, ci), ".config/containers/auth.json": auths(host, other)}, want: ci},
		{name: "the first that knows the host", files: map[string]string{".docker/config.json": auths("other", other), ".config/containers/auth.json": auths(host, ci)}, want: ci},
		{name: "podman, of a prefix", prefix: "metal/a", files: map[string]string{".config/containers/auth.json": auths(host+"/metal", ci)}, want: ci},
		{name: "podman, of another prefix", prefix: "metal-a", files: map[string]string{".config/containers/auth.json": auths(host+"/metal", ci)}},
		{name: "environment", set: map[string]string{envHost: host, envUser: "ci", envPassword: "secret"}, files: map[string]string{".docker/config.json": auths(host, other)}, want: ci},
		{name: "environment, as a reference", set: map[string]string{envHost: host + "/group/project", envUser: "ci", envPassword: "secret"}, want: ci},
		{name: "environment, another host", set: map[string]string{envHost: "registry.example.org", envUser: "ci", envPassword: "secret"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := workstation(t)
			for name, value := range c.set {
				t.Setenv(name, strings.Replace(value, "~", home, 1))
			}
			for name, text := range c.files {
				put(t, filepath.Join(home, name), text, 0o600)
			}
			if got, err := (&Chain{Prefix: c.prefix}).Find(t.Context(), host); err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestEnvironmentIsWhole(t *testing.T) {
	workstation(t)
	t.Setenv(envUser, "ci")
	t.Setenv(envPassword, "secret")
	if _, err := new(Chain).Find(t.Context(), host); err == nil || !strings.Contains(err.Error(), envHost) {
		t.Errorf("credentials for no host in particular: %v", err)
	}
}

func TestModes(t *testing.T) {
	for mode, want := range map[os.FileMode]string{0o600: "", 0o644: "warning", 0o666: "error"} {
		home := workstation(t)
		put(t, filepath.Join(home, ".docker/config.json"), auths(host, ci), mode)
		got := ""
		c := &Chain{Say: func(string, ...any) { got = "warning" }}
		if _, err := c.Find(t.Context(), host); err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("mode %04o: %q, want %q", mode, got, want)
		}
	}
}

// keeper is a docker-credential-test that keeps credentials in a file, and counts
// how often it is asked.
const keeper = `#!/bin/sh
echo "$1" >>"$HOME/calls"
case $1 in
get) read -r server; grep -q "\"$server\"" "$HOME/store" 2>/dev/null || { echo "credentials not found in native keychain"; exit 1; }; cat "$HOME/store" ;;
store) cat >"$HOME/store" ;;
erase) rm "$HOME/store" ;;
esac
`

func TestPrograms(t *testing.T) {
	for _, config := range []string{`{"credsStore":"test"}`, `{"credHelpers":{"` + host + `":"test"}}`} {
		home := workstation(t)
		put(t, filepath.Join(home, "bin/docker-credential-test"), keeper, 0o755)
		put(t, filepath.Join(home, ".docker/config.json"), config, 0o600)
		where, err := Save(t.Context(), host, ci)
		if err != nil || where != "docker-credential-test" {
			t.Fatalf("Save: %q, %v", where, err)
		}
		c := &Chain{}
		for range 2 {
			if got, err := c.Find(t.Context(), host); err != nil || got != ci {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		if calls, _ := os.ReadFile(filepath.Join(home, "calls")); string(calls) != "store\nget\n" {
			t.Errorf("calls: %q", calls)
		}
		if got, err := c.Find(t.Context(), "other"); err != nil || got != (pull.Login{}) {
			t.Errorf("another host: %+v, %v", got, err)
		}
		if _, found, err := Forget(t.Context(), host); err != nil || !found {
			t.Errorf("Forget: %v, %v", found, err)
		}
		if got, err := new(Chain).Find(t.Context(), host); err != nil || got != (pull.Login{}) {
			t.Errorf("after Forget: %+v, %v", got, err)
		}
	}
}

func TestProgramsThatAreNotUsed(t *testing.T) {
	answer := func(text string) string { return "#!/bin/sh\necho '" + text + "'\n" }
	for name, c := range map[string]struct{ config, program, want string }{
		"an answer for another host":  {`{"credsStore":"test"}`, answer(`{"ServerURL":"https://other","Username":"ci","Secret":"x"}`), `answers for "other"`},
		"an answer that is not JSON":  {`{"credsStore":"test"}`, answer("yes"), "docker-credential-test"},
		"a failure":                   {`{"credsStore":"test"}`, "#!/bin/sh\nexit 3\n", "docker-credential-test"},
		"a path":                      {`{"credsStore":"../evil"}`, "", "not the name of a program"},
		"a program that is not there": {`{"credsStore":"none"}`, "", "docker-credential-none"},
	} {
		t.Run(name, func(t *testing.T) {
			home := workstation(t)
			put(t, filepath.Join(home, "bin/docker-credential-test"), c.program, 0o755)
			put(t, filepath.Join(home, ".docker/config.json"), c.config, 0o600)
			if got, err := new(Chain).Find(t.Context(), host); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v; want an error with %q", got, err, c.want)
			}
		})
	}
	t.Run("an identity token", func(t *testing.T) {
		home := workstation(t)
		put(t, filepath.Join(home, "bin/docker-credential-test"), answer(`{"Username":"<token>","Secret":"identity"}`), 0o755)
		put(t, filepath.Join(home, ".docker/config.json"), `{"credsStore":"test"}`, 0o600)
		if got, err := new(Chain).Find(t.Context(), host); err != nil || got != (pull.Login{Token: "identity"}) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestAProgramThatHangs: what it has started ends with it, and so does the question.
func TestAProgramThatHangs(t *testing.T) {
	home := workstation(t)
	put(t, filepath.Join(home, "bin/docker-credential-test"), "#!/bin/sh\nsleep 1000 & echo $! >\"$HOME/new\"; mv \"$HOME/new\" \"$HOME/pid\"; wait\n", 0o755)
	put(t, filepath.Join(home, ".docker/config.json"), `{"credsStore":"test"}`, 0o600)
	enough := errors.New("it is enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := make(chan error, 1)
	go func() {
		_, err := new(Chain).Find(ctx, host)
		done <- err
	}()
	var child string
	wait(t, "the program's child to start", func() bool {
		text, err := os.ReadFile(filepath.Join(home, "pid"))
		child = strings.TrimSpace(string(text))
		return err == nil
	})
	cancel(enough)
	if err := <-done; !errors.Is(err, enough) || !strings.Contains(err.Error(), "docker-credential-test") {
		t.Errorf("the error is %v", err)
	}
	wait(t, "the program's child to end", func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", child, "stat"))
		return err != nil || strings.Contains(string(stat), ") Z")
	})
}

func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// TestSaveIsForCrane: its own keychain finds what Save wrote.
func TestSaveIsForCrane(t *testing.T) {
	home := workstation(t)
	t.Setenv("DOCKER_CONFIG", filepath.Join(home, "d"))
	if where, err := Save(t.Context(), host, ci); err != nil || where != filepath.Join(home, "d/config.json") {
		t.Fatalf("%q, %v", where, err)
	}
	registry, err := name.NewRegistry(host)
	if err != nil {
		t.Fatal(err)
	}
	found, err := authn.DefaultKeychain.Resolve(registry)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := found.Authorization(); err != nil || got.Username != ci.User || got.Password != ci.Password {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSaveKeepsTheRest: the file is docker's, and others have their lines in it.
func TestSaveKeepsTheRest(t *testing.T) {
	home := workstation(t)
	name := filepath.Join(home, ".docker/config.json")
	put(t, name, `{"auths":{"https://index.docker.io/v1/":{"auth":"YTpi"}},"credHelpers":{"gcr.io":"gcloud"},"psFormat":"x"}`, 0o644)
	for range 2 {
		if _, err := Save(t.Context(), host, ci); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := new(Chain).Find(t.Context(), host); err != nil || got != ci {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := new(Chain).Find(t.Context(), hub); err != nil || got.User != "a" {
		t.Errorf("Docker Hub: %+v, %v", got, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, found, err := Forget(t.Context(), host); err != nil || !found {
		t.Errorf("Forget: %v, %v", found, err)
	}
	if _, found, err := Forget(t.Context(), host); err != nil || found {
		t.Errorf("Forget again: %v, %v", found, err)
	}
	text, err := os.ReadFile(name)
	for _, want := range []string{"YTpi", "gcloud", "psFormat"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lost %s: %v", text, want, err)
		}
	}
}
