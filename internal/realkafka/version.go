package realkafka

import (
	_ "embed"
	"encoding/xml"
	"errors"
	"fmt"
)

//go:embed pom.xml
var pom []byte

// Version returns the version of the Kafka that [Open] starts, as pom.xml has it.
func Version() (string, error) {
	var project struct {
		Properties struct {
			Kafka string `xml:"kafka.version"`
		} `xml:"properties"`
	}
	if err := xml.Unmarshal(pom, &project); err != nil {
		return "", fmt.Errorf("read the version of Kafka from pom.xml: %w", err)
	}
	if project.Properties.Kafka == "" {
		return "", errors.New("read the version of Kafka: pom.xml has no <kafka.version>")
	}
	return project.Properties.Kafka, nil
}
