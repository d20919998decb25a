// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/base64"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/test/require"
)

// pipelineStep is what a runner gives to a shell.
type pipelineStep struct {
	name, script string
	env          map[string]string
}

// pipeline reads a file of examples/pipeline: its variables, and its steps in the
// order in which they stand.
func pipeline(t *testing.T, name string) (env map[string]string, steps []pipelineStep) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../examples/pipeline", name))
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	var file struct {
		Variables, Env map[string]string
		Jobs           yaml.Node
	}
	if err := doc.Decode(&file); err != nil {
		t.Fatal(err)
	}
	jobs := doc.Content[0] // GitLab's are the file's own keys
	if file.Jobs.Kind != 0 {
		jobs = &file.Jobs
	}
	for i := 0; i+1 < len(jobs.Content); i += 2 {
		var job struct {
			Script []string
			Steps  []struct {
				Run string
				Env map[string]string
			}
		}
		if jobs.Content[i+1].Kind != yaml.MappingNode || jobs.Content[i+1].Decode(&job) != nil {
			continue
		}
		name := jobs.Content[i].Value
		for _, line := range job.Script {
			steps = append(steps, pipelineStep{name: name, script: line})
		}
		for _, s := range job.Steps {
			if s.Run != "" {
				steps = append(steps, pipelineStep{name, s.Run, s.Env})
			}
		}
	}
	if file.Variables == nil {
		file.Variables = file.Env
	}
	return file.Variables, steps
}

var pipelines = []string{"gitlab.yml", "github.yml", "weekly.yml"}

var flagName = regexp.MustCompile(`^--?([a-z-]+)`)

// The examples' pipelines use verbs and flags that exist.
func TestPipelines(t *testing.T) {
	for _, file := range pipelines {
		_, steps := pipeline(t, file)
		seen := map[string]bool{}
		for _, step := range steps {
			for _, call := range strings.Split(strings.ReplaceAll(step.script, "\\\n", " "), "caisson ")[1:] {
				call, _, _ = strings.Cut(call, "\n")
				words := strings.Fields(call)
				root := newApp(io.Discard, io.Discard).root()
				verb, _, err := root.Find(words[:1])
				if err != nil || verb == root {
					t.Errorf("%s, %s: no verb %q", file, step.name, words[0])
					continue
				}
				seen[words[0]] = true
				for _, word := range words[1:] {
					if word == "||" || strings.HasPrefix(word, ">") {
						break
					}
					if m := flagName.FindStringSubmatch(word); m != nil && len(m[1]) > 1 {
						if verb.Flags().Lookup(m[1]) == nil && root.PersistentFlags().Lookup(m[1]) == nil {
							t.Errorf("%s, %s: %s has no flag --%s", file, step.name, words[0], m[1])
						}
					}
				}
			}
		}
		for _, verb := range []string{"validate", "lock", "plan", "build", "publish", "verify", "prune"} {
			if !seen[verb] {
				t.Errorf("%s does not %s", file, verb)
			}
		}
	}
}

// Every line of the pipelines, run as runners do, on a new site: with a layout for
// a registry, keys in variables, and twice, for the second run finds what the first left.
func TestLongPipelines(t *testing.T) {
	require.Long(t)
	require.Root(t)
	require.Net(t)
	require.Tool(t, "mmdebstrap", "mksquashfs", "unsquashfs", "xz", "apt-get", "jq", "go", "bash", "qemu-system-x86_64", "busybox")
	bin := t.TempDir()
	for _, program := range []string{"caisson", "caisson-agent"} {
		cmd := exec.Command("go", "build", "-o", bin, "../"+program)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	cache := cmp.Or(os.Getenv("CAISSON_TEST_CACHE"), t.TempDir())
	for _, file := range pipelines {
		t.Run(file, func(t *testing.T) {
			dir := t.TempDir()
			env := map[string]string{"PATH": bin + ":" + os.Getenv("PATH"), "HOME": dir, "RUNNER_TEMP": t.TempDir()}
			run := func(name, script string, more map[string]string) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
				cmd.Dir = dir
				for _, e := range []map[string]string{env, more} {
					for k, v := range e {
						cmd.Env = append(cmd.Env, k+"="+v)
					}
				}
				said, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s\n%s", name, err, script, said)
				}
				t.Logf("%s: %s\n%.2000s", name, script, said)
			}
			run("init", "caisson init metal-canary --kernel linux-image-cloud-amd64", nil)
			dir = filepath.Join(dir, "metal-canary")
			secrets := map[string]string{"REGISTRY_USER": "ci", "REGISTRY_PASSWORD": "password"}
			for _, role := range []string{"release", "attestation", "operator"} {
				key := filepath.Join(dir, "keys", role+".key")
				data, err := os.ReadFile(key)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(key); err != nil { // it is in no checkout
					t.Fatal(err)
				}
				secrets[strings.ToUpper(role)+"_KEY"] = base64.StdEncoding.EncodeToString(data)
			}
			variables, steps := pipeline(t, file)
			expand := func(vars map[string]string) map[string]string {
				vars = maps.Clone(vars)
				for k, v := range vars {
					for name, secret := range secrets {
						v = strings.ReplaceAll(v, "${{ secrets."+name+" }}", secret)
					}
					if vars[k] = v; strings.Contains(v, "${{") {
						t.Errorf("%s is %q: this runner does not know it", k, v)
					}
				}
				return vars
			}
			maps.Copy(env, expand(variables))
			maps.Copy(env, map[string]string{"REGISTRY": "oci:" + filepath.Join(t.TempDir(), "registry"), "CACHE": cache})
			if file != "github.yml" { // GitLab's protected variables are every job's
				maps.Copy(env, secrets)
			}
			for _, commit := range []string{"0123abcd", "4567cdef"} {
				env["CI_COMMIT_SHORT_SHA"], env["GITHUB_SHA"] = commit, commit
				for _, step := range steps {
					run(step.name, step.script, expand(step.env))
				}
			}
		})
	}
}
