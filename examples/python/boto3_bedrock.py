"""A client of boto3 for Amazon Bedrock that is attached to the gate.

The gate retries instead of boto3. The target has a maximum wait and a deadline, because AWS rejects
requests that were signed more than five minutes ago.
"""

import boto3

import tidegate

gate = tidegate.Gate(defaults={"cap": 4, "wait": "4m", "deadline": "5m"})
client = gate.attach_botocore(boto3.client("bedrock-runtime"))

messages = [{"role": "user", "content": [{"text": "When is high water?"}]}]
answer = client.converse(modelId="amazon.nova-lite-v1:0", messages=messages)
print(answer["output"]["message"]["content"][0]["text"])
