// SPDX-License-Identifier: Apache-2.0

package cluster

// Approval is a PublishApproval with what operators signed, as 'caisson approve' prints it.
type Approval struct {
	APIVersion string `json:"apiVersion" yaml:"apiVersion"`
	Kind       string `json:"kind" yaml:"kind"` // [PublishApproval]
	Metadata   struct {
		Name      string `json:"name" yaml:"name"`
		Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"` // that of kubectl when empty
	} `json:"metadata" yaml:"metadata"`
	Spec ApprovalSpec `json:"spec" yaml:"spec"`
}

// ApprovalSpec says who approves what.
type ApprovalSpec struct {
	Plan       string   `json:"plan" yaml:"plan"` // digest of the plan
	Author     string   `json:"author" yaml:"author"`
	Reason     string   `json:"reason,omitempty" yaml:"reason,omitempty"`
	Statements []string `json:"statements" yaml:"statements"` // one of each key
}

// NewApproval returns an approval as it is applied.
func NewApproval(namespace, name string, s ApprovalSpec) (a Approval) {
	a.APIVersion, a.Kind, a.Spec = Group+"/"+Version, PublishApproval, s
	a.Metadata.Namespace, a.Metadata.Name = namespace, name
	return a
}

// YAML is the object as kubectl reads it.
func (a Approval) YAML() ([]byte, error) { return encodeYAML(a) }
